// Package sources parses the clients that may connect to a load balancer, in the same way for every cloud: networks without host bits, each
// once. An entry that cannot be parsed admits nobody.
package sources

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// Field is the field of a Service's source ranges.
const Field = "spec.loadBalancerSourceRanges"

// maxProblems is how many networks of one setting a message names.
const maxProblems = 20

// Set is a set of clients that may connect. The zero value is empty.
type Set struct {
	everybody, partial bool
	networks           []netip.Prefix
}

// Everybody returns the set of all clients.
func Everybody() Set { return Set{everybody: true} }

// New returns a set of parsed networks; partial is set if a part of the setting could not be parsed.
func New(networks []netip.Prefix, partial bool) Set { return Set{networks: networks, partial: partial} }

// Parse parses the networks of a setting, which problems call place. Only a setting without any entry admits everybody. If there are
// problems, the set holds the rest, and is Partial.
func Parse(place string, texts []string) (Set, error) {
	if len(texts) == 0 {
		return Everybody(), nil
	}
	var set Set
	var problems []error
	known := map[netip.Prefix]bool{}
	for _, text := range texts {
		p, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil {
			set.partial = true
			if len(problems) < maxProblems {
				problems = append(problems, &schema.Problem{Place: place, Value: text, Reason: `is not a network; use a form such as "192.0.2.0/24"`})
			}
			continue
		}
		if p = p.Masked(); !known[p] {
			set.networks, known[p] = append(set.networks, p), true
		}
	}
	return set, errors.Join(problems...)
}

// ForService parses the source ranges of a Service, else those of an annotation. Only problems of the field are returned: Check, in the
// table of annotations, reports those of the annotation.
func ForService(service *v1.Service, annotation string) (Set, error) {
	if len(service.Spec.LoadBalancerSourceRanges) > 0 {
		return Parse(Field, service.Spec.LoadBalancerSourceRanges)
	}
	set, _ := ParseList(service.Annotations[annotation])
	return set, nil
}

// ParseList parses networks separated by commas.
func ParseList(text string) (Set, error) {
	if text = strings.TrimSpace(text); text == "" {
		return Everybody(), nil
	}
	var entries []string
	for entry := range strings.SplitSeq(text, ",") {
		if entry = strings.TrimSpace(entry); entry != "" {
			entries = append(entries, entry)
		}
	}
	if len(entries) == 0 {
		return Set{partial: true}, errors.New(`holds no network; remove it, or use a form such as "192.0.2.0/24,2001:db8::/32"`)
	}
	set, err := Parse("", entries)
	for _, problem := range schema.Problems(err) {
		if p, is := errors.AsType[*schema.Problem](problem); is {
			return set, fmt.Errorf(`holds %q, which is not a network; use a form such as "192.0.2.0/24,2001:db8::/32"`, p.Value)
		}
	}
	return set, nil
}

// Check returns the faults of an annotation or option that ParseList parses.
func Check(text string) error {
	_, err := ParseList(text)
	return err
}

// Everybody reports whether all clients may connect.
func (s Set) Everybody() bool { return s.everybody }

// Partial reports whether a part of the setting could not be parsed. The rest must not open or widen anything.
func (s Set) Partial() bool { return s.partial }

// Restricts reports whether a setting excludes clients: it neither admits everybody, nor is wholly unparsable.
func (s Set) Restricts() bool { return !s.everybody && (!s.partial || len(s.networks) > 0) }

// Networks returns the networks that may connect, in the order of the setting: none if everybody or nobody may.
func (s Set) Networks() []netip.Prefix { return s.networks }

// Families returns the part of a set in the given families.
func (s Set) Families(v4, v6 bool) Set {
	s.networks = slices.DeleteFunc(slices.Clone(s.networks), func(p netip.Prefix) bool {
		return (p.Addr().Is4() && !v4) || (p.Addr().Is6() && !v6)
	})
	return s
}

// Texts returns the networks as CIDRs, sorted; everybody is the cloud's notation for all clients.
func (s Set) Texts(everybody ...string) []string {
	if s.everybody {
		return everybody
	}
	texts := make([]string, len(s.networks))
	for i, p := range s.networks {
		texts[i] = p.String()
	}
	slices.Sort(texts)
	return texts
}

// Narrow returns the open networks after closing those outside of the set. If whole is set, all networks of the set are open afterwards, so
// that no permitted client is shut out in between. Otherwise, and for a Partial set, nothing widens: only networks inside those that close
// are opened. A set of which nothing could be parsed changes nothing.
func (s Set) Narrow(have []netip.Prefix, whole bool) (after []netip.Prefix, narrower bool) {
	if !s.Restricts() {
		return have, false
	}
	within := func(inner, outer netip.Prefix) bool {
		return outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
	}
	var closes []netip.Prefix
	for _, h := range have {
		if slices.ContainsFunc(s.networks, func(n netip.Prefix) bool { return within(h, n) }) {
			after = append(after, h)
		} else {
			closes = append(closes, h)
		}
	}
	if len(closes) == 0 {
		return have, false
	}
	for _, n := range s.networks {
		opens := whole && !s.partial || slices.ContainsFunc(closes, func(c netip.Prefix) bool { return within(n, c) })
		if opens && !slices.Contains(after, n) {
			after = append(after, n)
		}
	}
	return after, true
}

// NarrowTexts is Narrow for CIDRs, sorted afterwards; texts of another form stay.
func (s Set) NarrowTexts(have []string, whole bool) (after []string, narrower bool) {
	var networks []netip.Prefix
	for _, text := range have {
		if p, err := netip.ParsePrefix(text); err == nil {
			networks = append(networks, p.Masked())
		} else {
			after = append(after, text)
		}
	}
	networks, narrower = s.Narrow(networks, whole)
	if !narrower {
		return have, false
	}
	for _, p := range networks {
		after = append(after, p.String())
	}
	slices.Sort(after)
	return slices.Compact(after), true
}
