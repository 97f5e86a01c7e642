"""The lab: two Sparks of real parts on one machine. Network namespaces, real OpenSSH servers, real Docker Engines."""
