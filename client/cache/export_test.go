package cache

// Hooks are what the client has for caches, for tests that stand in for one.
var Hooks = hooks
