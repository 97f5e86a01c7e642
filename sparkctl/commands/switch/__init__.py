"""The parts of a switch: what is looked at and checked, the journal and the locks, the steps forward and the way back."""
