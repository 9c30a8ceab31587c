package otlp

import "errors"

// Settings say of which calls spans are made, and who gets them.
type Settings struct {
	// Endpoint is the URL of a collector that speaks OTLP over HTTP, such as
	// http://localhost:4318; /v1/traces is added to its path. Default: none, and no spans are made.
	Endpoint string
	// SampleRate is the share of the calls that belong to no trace yet, from 0 to 1, which begin
	// one. Of others the callers decide. Default 0.
	SampleRate float64
	// ServiceName is by which name spans say whose they are. Default "leasehold".
	ServiceName string
	// HeadersFile has headers for the collector, "Name: value" each line, such as what authorizes
	// the member. It is read before each batch, so that it may be replaced. Default: none.
	HeadersFile string
}

// Defaults returns the settings of a member that makes no spans.
func Defaults() Settings { return Settings{ServiceName: "leasehold"} }

// Check says what cannot be.
func (s *Settings) Check() error {
	switch {
	case !(s.SampleRate >= 0 && s.SampleRate <= 1): // not a number is not either
		return errors.New("--trace-sample-rate must be from 0 to 1")
	case s.Endpoint == "" && (s.SampleRate > 0 || s.HeadersFile != ""):
		return errors.New("--trace-sample-rate and --trace-headers-file need --trace-endpoint")
	case s.Endpoint == "":
		return nil
	case s.ServiceName == "":
		return errors.New("--trace-service-name must not be empty")
	}
	_, err := target(s.Endpoint)
	return err
}
