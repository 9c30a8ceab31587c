// Package trace has what distributed tracing is made of: where a call says which trace it is part
// of (W3C Trace Context), which calls are sampled, and spans with their encoding (OTLP). It is
// pure: times and random numbers are arguments. Package otlp sends spans to a collector.
package trace
