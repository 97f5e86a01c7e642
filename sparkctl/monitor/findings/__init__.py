"""Health findings: pure detectors that get one snapshot of a node after another and return what is wrong."""
