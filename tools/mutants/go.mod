// The mutation tool. It is a module of its own, so that it is no part of the project's tests:
// go run -C tools/mutants . lease
module leasehold.dev/tools/mutants

go 1.26.0
