// Package sources reads who may connect to a load balancer, the same on every cloud: networks without bits of hosts, each once. What
// cannot be read lets nobody in.
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

// Field is where a Service's source ranges stand.
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

// New returns who may connect from networks that were read already, of a setting of which a part may not be readable.
func New(networks []netip.Prefix, partial bool) Set { return Set{networks: networks, partial: partial} }

// Parse reads the networks of a setting, of which place is the name in problems. Only a setting without any entry lets everybody in. The
// set of one that has problems holds what can be read, and is Partial.
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

// ForService reads the source ranges of a Service, else those of an annotation, whose check in the table of annotations is Check: only
// the problems of the field are returned.
func ForService(service *v1.Service, annotation string) (Set, error) {
	if len(service.Spec.LoadBalancerSourceRanges) > 0 {
		return Parse(Field, service.Spec.LoadBalancerSourceRanges)
	}
	set, _ := ParseList(service.Annotations[annotation])
	return set, nil
}

// ParseList reads networks that are separated by commas.
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

// Check says what is wrong with an annotation or option that ParseList reads.
func Check(text string) error {
	_, err := ParseList(text)
	return err
}

// Everybody reports whether nothing restricts who may connect.
func (s Set) Everybody() bool { return s.everybody }

// Partial reports whether some of the setting could not be read. Nothing may be opened or widened by what is left.
func (s Set) Partial() bool { return s.partial }

// Restricts reports whether a setting says who may not connect: not where everybody may, nor where nothing of it could be read.
func (s Set) Restricts() bool { return !s.everybody && (!s.partial || len(s.networks) > 0) }

// Networks are those that may connect, in the order of the setting: none where everybody or nobody may.
func (s Set) Networks() []netip.Prefix { return s.networks }

// Families is the part of a set that is of these families.
func (s Set) Families(v4, v6 bool) Set {
	s.networks = slices.DeleteFunc(slices.Clone(s.networks), func(p netip.Prefix) bool {
		return (p.Addr().Is4() && !v4) || (p.Addr().Is6() && !v6)
	})
	return s
}

// Texts are the networks in the form of a CIDR, sorted; everybody is how the cloud writes that all may connect.
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

// Narrow says what becomes of openings to networks whose sources are to be those of a set, where some of them are to close: those that lie
// in none of its networks. Where it is whole, all of its networks are open afterwards, so that nobody who may connect is shut out in
// between. Otherwise, and of a set that is Partial, nothing widens: what is opened by itself lies in what closes. Of a set of which nothing
// could be read, all stays.
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

// NarrowTexts is Narrow for networks in the form of a CIDR, sorted afterwards; what has another form stays.
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
