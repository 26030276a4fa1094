package registry

import (
	"errors"
	"fmt"
	"slices"

	"github.com/anyccm/cloud-controller-manager/registry/portable"
)

// Features lists the features of a provider, for the feature matrix, the conformance suite and checks at start. The suite, or the
// provider's tables, prove the claims: CheckFeatures.
type Features struct {
	Instances     Support `json:"instances"`
	LoadBalancers Support `json:"loadBalancers"`
	Routes        Support `json:"routes"`

	// Zones: nodes get their zone, and not only the region.
	Zones Support `json:"zones"`
	// ServingCertificates: the cloud alone knows the names and addresses of an instance, so that its kubelet's request is judged by them.
	ServingCertificates Support `json:"servingCertificates"`

	// Internal: load balancers that only a private network reaches. A row serves the portable annotation for the scheme.
	Internal Support `json:"internal"`
	// ReservedAddresses: load balancers get an address that the user owns. A row serves the portable annotation for it.
	ReservedAddresses Support `json:"reservedAddresses"`
	// TLS ends at the load balancer. A row serves the portable annotation for the certificate.
	TLS Support `json:"tls"`
	// ProxyProtocol: it tells backends the client's address. A row serves the portable annotation for it.
	ProxyProtocol Support `json:"proxyProtocol"`
	// UDP: ports of UDP.
	UDP Support `json:"udp"`
	// DualStack: one load balancer accepts clients by IPv4 and by IPv6.
	DualStack Support `json:"dualStack"`
	// SourceRanges: spec.loadBalancerSourceRanges keeps other clients out.
	SourceRanges Support `json:"sourceRanges"`
}

// InstanceTags describes what a cloud's instances have in place of labels.
type InstanceTags struct {
	// Called is the cloud's word for them, with what else a rule must know, such as that they have no values; "" if there are none.
	Called string `json:"called,omitempty"`
	// Call names the further call that reads those of all instances, which is made only while rules ask for tags; "" if the reads of
	// instances have them.
	Call string `json:"call,omitempty"`
	// Elsewhere names what would have to be asked for them, for which they are not served; "" if they are.
	Elsewhere string `json:"elsewhere,omitempty"`
}

// Served reports whether tags can become labels.
func (t InstanceTags) Served() bool { return t.Called != "" && t.Elsewhere == "" }

// Detail is a feature of nodes or of load balancers.
type Detail struct {
	// Title is its name in the matrix.
	Title string
	// Support is the provider's support: no more than that of the feature it is a part of.
	Support Support
	// said is the support that the description claims; whole is that of the feature it is a part of.
	said, whole Support
	// portable is the annotation that a row must serve if the feature is supported, with the required value; "" if the conformance suite
	// tests the feature itself.
	portable, value string
}

// Details are the features within nodes and load balancers, in the order of the matrix.
func (f Features) Details() []Detail {
	all := []Detail{
		{Title: "zones of nodes", said: f.Zones, whole: f.Instances},
		{Title: "serving certificates", said: f.ServingCertificates, whole: f.Instances},
		{Title: "internal", said: f.Internal, whole: f.LoadBalancers, portable: portable.Scheme, value: portable.SchemeInternal},
		{Title: "reserved addresses", said: f.ReservedAddresses, whole: f.LoadBalancers, portable: portable.Address},
		{Title: "TLS", said: f.TLS, whole: f.LoadBalancers, portable: portable.Certificate},
		{Title: "PROXY protocol", said: f.ProxyProtocol, whole: f.LoadBalancers, portable: portable.ProxyProtocol},
		{Title: "UDP", said: f.UDP, whole: f.LoadBalancers},
		{Title: "dual stack", said: f.DualStack, whole: f.LoadBalancers},
		{Title: "source ranges", said: f.SourceRanges, whole: f.LoadBalancers},
	}
	for i := range all {
		if all[i].Support = all[i].said; all[i].whole != Done {
			all[i].Support = all[i].whole
		}
	}
	return all
}

// CheckFeatures returns claims in a provider's description that its tables of annotations and fields contradict.
func (p Provider) CheckFeatures() error {
	var problems []error
	for _, d := range p.Features.Details() {
		switch {
		case d.said == Done && d.whole != Done:
			problems = append(problems, fmt.Errorf("%s: the description says that this is done, and not what it is a feature of", d.Title))
		case d.portable != "" && d.whole == Done && (d.said == Done) != p.serves(d.portable, d.value):
			problems = append(problems, fmt.Errorf("%s: the description says %q, and a row serves %s: %t",
				d.Title, d.said, d.portable, p.serves(d.portable, d.value)))
		}
	}
	return errors.Join(problems...)
}

// serves reports whether a row serves a value of a portable annotation; "" stands for any.
func (p Provider) serves(key, value string) bool {
	return slices.ContainsFunc(p.Cloud().Pairs(key), func(pair portable.Pair) bool {
		_, has := pair.Serves.Values[value]
		return value == "" || pair.Serves.Values == nil || has
	})
}

// Support is the degree to which a provider has a feature.
type Support int

// Degrees of support.
const (
	// NotYet: the cloud has it, and the provider does not use it.
	NotYet Support = iota
	// Done: the provider has it.
	Done
	// CloudHasNone: the cloud does not have it.
	CloudHasNone
)

// String returns the text for documentation; "" for an invalid value.
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
