// Stands in for the project's module in the tests of the tool.
module leasehold.dev

go 1.26.0
