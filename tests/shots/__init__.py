"""Pictures of the panel, from recordings of simulated Sparks, with a clock that stands still.

``python -m tests.shots`` makes the pictures in ``screenshots/`` anew, ``python -m tests.shots.record`` the recordings. The
snapshot tests look at the same scenes.
"""
