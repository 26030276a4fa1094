package registry

import "fmt"

// Features says what a provider does, for the feature matrix, the conformance suite and checks at start.
type Features struct {
	Instances     Support `json:"instances"`
	LoadBalancers Support `json:"loadBalancers"`
	Routes        Support `json:"routes"`
}

// Support says how far a provider has a feature.
type Support int

// How far a provider has a feature.
const (
	// NotYet: the cloud has it, and the provider makes no use of it.
	NotYet Support = iota
	// Done: the provider has it.
	Done
	// CloudHasNone: the cloud has nothing of the kind.
	CloudHasNone
)

// String says it in words; it is empty for what is none of them.
func (s Support) String() string {
	switch s {
	case NotYet:
		return "not yet"
	case Done:
		return "yes"
	case CloudHasNone:
		return "the cloud has none"
	}
	return ""
}

// MarshalText implements encoding.TextMarshaler.
func (s Support) MarshalText() ([]byte, error) {
	text := s.String()
	if text == "" {
		return nil, fmt.Errorf("%d says nothing about a feature", int(s))
	}
	return []byte(text), nil
}
