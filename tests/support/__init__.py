"""What the tests stand on: broker processes, clients with one shape, raw sockets. Not a test."""
