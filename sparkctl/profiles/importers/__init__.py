"""Import other formats: `docker run` lines, compose files, sparkrun and eugr recipes, containers. Pure; each reader
makes a `ProfileDraft`.
"""
