"""Pictures of the panel, from recordings of simulated Sparks, with a clock that stands still.

``python -m tests.tools.pictures`` makes the pictures in ``screenshots/`` anew, ``python -m tests.tools.pictures.make_recordings`` the recordings. The
snapshot tests look at the same scenes.
"""
