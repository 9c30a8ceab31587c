// Package trace has the parts of distributed tracing: the header that says to which trace a call
// belongs (W3C Trace Context), the choice of calls that are sampled, and spans with their
// encoding (OTLP). It is pure: times and random numbers are arguments. Package otlp sends spans
// to a collector.
package trace
