"""Docker on a node: API client, log streams, requests and responses, errors."""
