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

var supportTexts = map[Support]string{NotYet: "not yet", Done: "yes", CloudHasNone: "the cloud has none"}

// String says it in words.
func (s Support) String() string { return supportTexts[s] }

// MarshalText implements encoding.TextMarshaler.
func (s Support) MarshalText() ([]byte, error) {
	text, ok := supportTexts[s]
	if !ok {
		return nil, fmt.Errorf("%d says nothing about a feature", int(s))
	}
	return []byte(text), nil
}
