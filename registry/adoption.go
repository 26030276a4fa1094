package registry

import (
	"fmt"

	"github.com/spf13/pflag"
)

// Adoption is the operator's policy about load balancers that carry no mark and that a Service asks for.
type Adoption string

// Policies.
const (
	// AdoptEvidence adopts what is the Service's own by evidence that its author cannot forge.
	AdoptEvidence Adoption = "evidence"
	// AdoptAny adopts whatever a Service names and no other Service or cluster has.
	AdoptAny Adoption = "any"
	// AdoptNone adopts nothing but what has the name that controllers give to this very Service.
	AdoptNone Adoption = "none"
)

// String implements pflag.Value.
func (a *Adoption) String() string {
	if *a == "" {
		return string(AdoptEvidence)
	}
	return string(*a)
}

// Set implements pflag.Value.
func (a *Adoption) Set(v string) error {
	switch Adoption(v) {
	case AdoptEvidence, AdoptAny, AdoptNone:
		*a = Adoption(v)
		return nil
	}
	return fmt.Errorf("use %s, %s or %s", AdoptEvidence, AdoptAny, AdoptNone)
}

// Type implements pflag.Value.
func (*Adoption) Type() string { return "policy" }

// AddFlag declares --adopt-load-balancers.
func (a *Adoption) AddFlag(fs *pflag.FlagSet) {
	fs.Var(a, "adopt-load-balancers", "Which load balancers that this program has not marked a Service may adopt: evidence (its own, shown by "+
		"their name, the addresses in its status or its node ports), any (each that it names and nobody else has), none (only those named after it).")
}
