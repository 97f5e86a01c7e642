"""``setup``: what `doctor` finds missing on a node is put in place, with a way back."""
