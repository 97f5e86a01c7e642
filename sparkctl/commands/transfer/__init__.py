"""Copying a profile's image and model files between Sparks: the plan, the stream between two nodes, files and
images.
"""
