package linodesim

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/linode/linodelimits"
)

// Firewall is a cloud firewall.
type Firewall struct {
	ID      int      `json:"id"`
	Label   string   `json:"label"`
	Created string   `json:"created"`
	Updated string   `json:"updated"`
	Status  string   `json:"status"`
	Rules   Rules    `json:"rules"`
	Tags    []string `json:"tags"`

	devices map[int]Entity
}

// Entity is the device that a firewall protects.
type Entity struct {
	ID    int    `json:"id"`
	Type  string `json:"type"`
	Label string `json:"label"`
	URL   string `json:"url"`
}

// Rules are the rules of a firewall.
type Rules struct {
	Inbound        []Rule `json:"inbound"`
	InboundPolicy  string `json:"inbound_policy"`
	Outbound       []Rule `json:"outbound"`
	OutboundPolicy string `json:"outbound_policy"`
	Version        int    `json:"version,omitempty"`
	Fingerprint    string `json:"fingerprint,omitempty"`
}

// Rule lets traffic through, or stops it.
type Rule struct {
	Protocol    string    `json:"protocol"`
	Ports       string    `json:"ports,omitempty"`
	Addresses   Addresses `json:"addresses"`
	Action      string    `json:"action"`
	Label       string    `json:"label"`
	Description string    `json:"description,omitempty"`
}

// Addresses are the networks of a rule.
type Addresses struct {
	IPv4 *[]string `json:"ipv4,omitempty"`
	IPv6 *[]string `json:"ipv6,omitempty"`
}

func (s *Sim) firewallView(f *Firewall) map[string]any {
	entities := []Entity{}
	for _, e := range sorted(f.devices) {
		entities = append(entities, s.withURL(e))
	}
	rules := f.Rules
	rules.Inbound = slices.Clone(rules.Inbound)
	for i := range rules.Inbound {
		for _, networks := range []**[]string{&rules.Inbound[i].Addresses.IPv4, &rules.Inbound[i].Addresses.IPv6} {
			if *networks != nil {
				*networks = new(simkit.Shuffled(&s.disorder, **networks))
			}
		}
	}
	return map[string]any{
		"id": f.ID, "label": f.Label, "created": f.Created, "updated": f.Updated, "status": f.Status, "rules": rules,
		"tags": simkit.Shuffled(&s.disorder, f.Tags), "entities": simkit.Shuffled(&s.disorder, entities),
	}
}

func (s *Sim) withURL(e Entity) Entity {
	e.URL = fmt.Sprintf("/v4/nodebalancers/%d", e.ID)
	if l := s.VMs.ByID[e.ID]; l != nil && e.Type == "linode" {
		e.URL, e.Label = fmt.Sprintf("/v4/linode/instances/%d", e.ID), l.Label
	}
	if nb := s.nodeBalancers[e.ID]; nb != nil {
		e.Label = nb.Label
	}
	return e
}

// Firewalls returns copies of all firewalls in order of creation.
func (s *Sim) Firewalls() []Firewall {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := []Firewall{}
	for _, f := range sorted(s.firewalls) {
		all = append(all, *f)
	}
	return all
}

// Devices returns the identifiers of the NodeBalancers that a firewall protects.
func (f Firewall) Devices() []int {
	ids := []int{}
	for _, e := range sorted(f.devices) {
		ids = append(ids, e.ID)
	}
	return ids
}

// Attachments returns the identifiers of what attaches the firewall to NodeBalancers.
func (f Firewall) Attachments() []int { return slices.Sorted(maps.Keys(f.devices)) }

// AddFirewall adds a firewall of a user, attached to NodeBalancers.
func (s *Sim) AddFirewall(label string, nodeBalancers ...int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := &Firewall{
		ID: s.next(), Label: label, Created: timeNow(), Updated: timeNow(), Status: "enabled", Tags: []string{}, devices: map[int]Entity{},
		Rules: Rules{Inbound: []Rule{}, Outbound: []Rule{}, InboundPolicy: "DROP", OutboundPolicy: "ACCEPT", Version: 1, Fingerprint: fingerprint(1)},
	}
	for _, id := range nodeBalancers {
		f.devices[s.next()] = Entity{ID: id, Type: "nodebalancer"}
	}
	s.firewalls[f.ID] = f
	return f.ID
}

// Protect attaches a firewall to one more NodeBalancer behind the API's back.
func (s *Sim) Protect(firewall, nodeBalancer int) {
	s.mu.Do(func() { s.firewalls[firewall].devices[s.next()] = Entity{ID: nodeBalancer, Type: "nodebalancer"} })
}

var firewallLabel = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{1,30}[a-zA-Z0-9]$`)

func checkRules(r *Rules) error {
	if r.Version != 0 || r.Fingerprint != "" {
		return invalid("rules", "version and fingerprint are set by the API alone")
	}
	for _, p := range []string{r.InboundPolicy, r.OutboundPolicy} {
		if p != "ACCEPT" && p != "DROP" {
			return invalid("rules", "policies must be ACCEPT or DROP")
		}
	}
	if err := linodelimits.FirewallRules.CheckNumber(len(r.Inbound) + len(r.Outbound)); err != nil {
		return err
	}
	for _, one := range slices.Concat(r.Inbound, r.Outbound) {
		if err := checkRule(one); err != nil {
			return err
		}
	}
	if r.Inbound == nil {
		r.Inbound = []Rule{}
	}
	if r.Outbound == nil {
		r.Outbound = []Rule{}
	}
	return nil
}

func checkRule(r Rule) error {
	count, err := countAddresses(r)
	switch {
	case err != nil:
		return err
	case count == 0:
		return invalid("addresses", "a rule needs an address")
	case !slices.Contains([]string{"TCP", "UDP", "ICMP", "IPENCAP", "ALL"}, r.Protocol) && !identifier.MatchString(r.Protocol):
		return invalid("protocol", "protocol is not valid")
	case r.Action != "ACCEPT" && r.Action != "DROP":
		return invalid("action", "action is not valid")
	case len(r.Label) < 3:
		return invalid("label", "rule labels have at least 3 characters")
	}
	return errors.Join(linodelimits.RuleAddresses.CheckNumber(count), checkPorts(r.Ports))
}

func countAddresses(r Rule) (int, error) {
	count := 0
	for _, list := range []*[]string{r.Addresses.IPv4, r.Addresses.IPv6} {
		if list == nil {
			continue
		}
		if len(*list) == 0 {
			return 0, invalid("addresses", "an address list must not be empty")
		}
		count += len(*list)
		for i, a := range *list {
			p, err := netip.ParsePrefix(a)
			if err != nil {
				return 0, invalid("addresses", "%s is not a valid network", a)
			}
			(*list)[i] = p.String() // in the usual spelling
		}
	}
	return count, nil
}

func checkPorts(ports string) error {
	if ports == "" {
		return nil // all of them
	}
	pieces := 0
	for piece := range strings.SplitSeq(ports, ",") {
		low, high, isRange := strings.Cut(strings.TrimSpace(piece), "-")
		for _, text := range []string{low, high} {
			if text == "" && !isRange {
				continue
			}
			if n, err := strconv.Atoi(text); err != nil || n < 1 || n > 65535 {
				return invalid("ports", "%s is not a valid port", piece)
			}
			pieces++
		}
	}
	return linodelimits.RulePorts.CheckNumber(pieces)
}

func (s *Sim) listFirewalls(r *http.Request, _ []string) (any, error) {
	all := []any{}
	for _, f := range shown(s, s.firewalls) {
		all = append(all, s.firewallView(f))
	}
	return list(s, r, all)
}

func (s *Sim) getFirewall(_ *http.Request, ids []string) (any, error) {
	f, err := find(s.firewalls, ids[0])
	if err != nil {
		return nil, err
	}
	return s.firewallView(f), nil
}

func (s *Sim) checkFirewallLabel(label string, id int) error {
	if !firewallLabel.MatchString(label) || regexp.MustCompile(`--|__|\.\.`).MatchString(label) {
		return invalid("label", "Label is not valid")
	}
	for _, other := range s.firewalls {
		if other.ID != id && other.Label == label {
			return invalid("label", "Label must be unique among your Cloud Firewalls")
		}
	}
	return nil
}

func (s *Sim) createFirewall(r *http.Request, _ []string) (any, error) {
	var in struct {
		Label   string   `json:"label"`
		Rules   Rules    `json:"rules"`
		Tags    []string `json:"tags"`
		Devices struct {
			NodeBalancers []int `json:"nodebalancers"`
			Linodes       []int `json:"linodes"`
		} `json:"devices"`
	}
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	if err := s.checkFirewallLabel(in.Label, 0); err != nil {
		return nil, err
	}
	if err := checkRules(&in.Rules); err != nil {
		return nil, err
	}
	f := &Firewall{
		ID: s.next(), Label: in.Label, Created: timeNow(), Updated: timeNow(), Status: "enabled", Rules: in.Rules, Tags: append([]string{}, in.Tags...),
		devices: map[int]Entity{},
	}
	f.Rules.Version, f.Rules.Fingerprint = 1, fingerprint(1)
	for _, id := range in.Devices.NodeBalancers {
		if s.nodeBalancers[id] == nil {
			return nil, invalid("devices.nodebalancers", "NodeBalancer not found")
		}
		f.devices[s.next()] = Entity{ID: id, Type: "nodebalancer"}
	}
	s.firewalls[f.ID] = f
	s.changed(nil, f.ID)
	return s.firewallView(f), nil
}

func (s *Sim) updateFirewall(r *http.Request, ids []string) (any, error) {
	f, err := find(s.firewalls, ids[0])
	if err != nil {
		return nil, err
	}
	var in struct {
		Label  *string   `json:"label"`
		Status *string   `json:"status"`
		Tags   *[]string `json:"tags"`
	}
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	if in.Label != nil {
		if err := s.checkFirewallLabel(*in.Label, f.ID); err != nil {
			return nil, err
		}
		f.Label = *in.Label
	}
	if in.Tags != nil {
		f.Tags = append([]string{}, *in.Tags...)
	}
	return s.firewallView(f), nil
}

func (s *Sim) deleteFirewall(_ *http.Request, ids []string) (any, error) {
	f, err := find(s.firewalls, ids[0])
	if err != nil {
		return nil, err
	}
	delete(s.firewalls, f.ID)
	s.changed(f, f.ID)
	return struct{}{}, nil
}

// fingerprint stands for the one that the API computes of a version of the rules.
func fingerprint(version int) string { return fmt.Sprintf("%08x", version) }

func (s *Sim) getRules(_ *http.Request, ids []string) (any, error) {
	f, err := find(s.firewalls, ids[0])
	if err != nil {
		return nil, err
	}
	return f.Rules, nil
}

func (s *Sim) updateRules(r *http.Request, ids []string) (any, error) {
	f, err := find(s.firewalls, ids[0])
	if err != nil {
		return nil, err
	}
	var in Rules
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	if err := checkRules(&in); err != nil {
		return nil, err
	}
	in.Version, in.Fingerprint = f.Rules.Version+1, fingerprint(f.Rules.Version+1)
	f.Rules = in
	return f.Rules, nil
}

func (s *Sim) device(id int, e Entity) map[string]any {
	return map[string]any{"id": id, "entity": s.withURL(e), "created": timeNow(), "updated": timeNow()}
}

func (s *Sim) listDevices(r *http.Request, ids []string) (any, error) {
	f, err := find(s.firewalls, ids[0])
	if err != nil {
		return nil, err
	}
	all := []any{}
	for id, e := range f.devices {
		all = append(all, s.device(id, e))
	}
	return list(s, r, all)
}

func (s *Sim) createDevice(r *http.Request, ids []string) (any, error) {
	f, err := find(s.firewalls, ids[0])
	if err != nil {
		return nil, err
	}
	var in struct {
		ID   int    `json:"id"`
		Type string `json:"type"`
	}
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	if (in.Type != "nodebalancer" || s.nodeBalancers[in.ID] == nil) && (in.Type != "linode" || s.VMs.ByID[in.ID] == nil) {
		return nil, invalid("id", "Entity not found")
	}
	for _, e := range f.devices {
		if e.ID == in.ID {
			return nil, invalid("id", "The device is attached already")
		}
	}
	id := s.next()
	f.devices[id] = Entity{ID: in.ID, Type: in.Type}
	return s.device(id, f.devices[id]), nil
}

func (s *Sim) deleteDevice(_ *http.Request, ids []string) (any, error) {
	f, err := find(s.firewalls, ids[0])
	if err != nil {
		return nil, err
	}
	id := number(ids[1])
	if _, ok := f.devices[id]; !ok {
		return nil, errNotFound
	}
	delete(f.devices, id)
	return struct{}{}, nil
}

// RemoveFirewalls deletes all firewalls as somebody does by hand.
func (s *Sim) RemoveFirewalls() { s.mu.Do(func() { clear(s.firewalls) }) }

// ChangeFirewall changes a firewall behind the API's back.
func (s *Sim) ChangeFirewall(id int, change func(*Firewall)) {
	s.mu.Do(func() { change(s.firewalls[id]) })
}
