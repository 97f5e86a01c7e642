"""Health findings: pure detectors that are fed one sight of a node after another and say what they show."""
