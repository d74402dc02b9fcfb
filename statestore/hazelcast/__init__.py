"""States in a Hazelcast cluster: `jar` obtains the server, `member` runs it, `grid` talks to it, `store` is the back end."""
