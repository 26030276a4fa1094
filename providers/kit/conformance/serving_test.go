package conformance

import (
	"testing"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
)

// TestGaps: a port may lead meanwhile to where it led before and to where it leads afterwards, but not nowhere and not elsewhere.
func TestGaps(t *testing.T) {
	t.Parallel()
	at := func(backends ...string) map[string][]string { return map[string][]string{"tcp/80": backends} }
	for name, c := range map[string]struct {
		meanwhile map[string][]string
		gaps      []string
	}{
		"as before":      {at("a:1", "b:1"), nil},
		"on the way":     {at("a:2", "b:1"), nil},
		"to one of two":  {at("a:1"), nil},
		"nowhere":        {at(), []string{"tcp/80 leads nowhere after PUT"}},
		"to a third":     {at("a:1", "c:1"), []string{"tcp/80 leads elsewhere after PUT: [c:1]"}},
		"to a third one": {at("a:3"), []string{"tcp/80 leads elsewhere after PUT: [a:3]"}},
	} {
		var s serving
		s.begin(at("a:1", "b:1"))
		s.add("PUT", c.meanwhile)
		assert.Equal(t, c.gaps, s.findGaps(at("a:2", "b:2")), name)
	}
}

// TestUnserved: a port is missing where one of its families is, or one of two Services that have it.
func TestUnserved(t *testing.T) {
	t.Parallel()
	web, other := Service("web", nil, Port("http", 80, 30080)), Service("other", nil, Port("http", 80, 30081))
	web.Spec.IPFamilies = []v1.IPFamily{v1.IPv4Protocol, v1.IPv6Protocol}
	first, second := []string{"n:30080"}, []string{"n:30081"}
	for name, c := range map[string]struct {
		together bool
		services []*v1.Service
		ports    map[string][]string
		wrong    []string
	}{
		"both families":        {services: []*v1.Service{web}, ports: map[string][]string{"tcp/80": first, "tcp/80 ipv6": first}},
		"one family":           {services: []*v1.Service{web}, ports: map[string][]string{"tcp/80": first}, wrong: []string{"tcp/80 ipv6 does not serve"}},
		"families of one port": {together: true, services: []*v1.Service{web}, ports: map[string][]string{"tcp/80": first}},
		"the other's port": {
			services: []*v1.Service{web}, ports: map[string][]string{"tcp/80": first, "tcp/80 ipv6": second},
			wrong: []string{"tcp/80 ipv6 leads to [n:30081], not to [n:30080]"},
		},
		"two Services": {
			together: true, services: []*v1.Service{web, other}, ports: map[string][]string{"tcp/80": first, "tcp/80 another": second},
		},
		"one of two Services": {
			together: true, services: []*v1.Service{web, other}, ports: map[string][]string{"tcp/80": first}, wrong: []string{"tcp/80 does not serve"},
		},
		"nobody's": {ports: map[string][]string{"udp/53": first}, wrong: []string{"udp/53 serves, and no Service has it"}},
	} {
		node := &v1.Node{}
		node.Name = "n"
		w := &world{Fixture: &Fixture{EachFamily: !c.together}, nodes: []*v1.Node{node}}
		p := &Play{w: w, services: c.services, served: map[string]*v1.Service{}}
		for _, s := range c.services {
			p.served[s.Name] = s
		}
		assert.Equal(t, c.wrong, p.findUnserved(c.ports), name)
	}
}
