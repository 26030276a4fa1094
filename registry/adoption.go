package registry

import (
	"fmt"

	"github.com/spf13/pflag"
)

// Adoption is the operator's policy about load balancers that have no mark and that a Service requests.
type Adoption string

// Policies.
const (
	// AdoptEvidence adopts load balancers that belong to the Service by evidence that its author cannot forge.
	AdoptEvidence Adoption = "evidence"
	// AdoptAny adopts any load balancer that a Service names and no other Service or cluster has.
	AdoptAny Adoption = "any"
	// AdoptNone adopts only load balancers with the name that controllers give to this Service's.
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
