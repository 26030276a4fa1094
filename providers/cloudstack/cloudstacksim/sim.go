// Package cloudstacksim simulates the part of a CloudStack management server's API that a cloud controller manager touches: virtual
// machines, networks, VPC tiers, public addresses, load balancer and firewall rules, network ACLs, stickiness policies, tags and jobs.
//
// Facts about the interface come from the API's own description (the command listApis) and the reference at
// https://cloudstack.apache.org/api.
package cloudstacksim

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// Versions of the management server that differ in what is simulated.
const (
	// V419 masks no error of a job that assigns virtual machines, and ignores CIDRs in updates.
	V419 = "4.19.0.0"
	// V420 masks them.
	V420 = "4.20.1.0"
	// V422 changes the CIDRs of a load balancer rule in place.
	V422 = "4.22.0.0"
)

// defaultPage is the global setting default.page.size, which is also the largest page.
const defaultPage = 500

// Options set up a simulator.
type Options struct {
	// Activation is how long a job takes, half of it more or less.
	Activation time.Duration
	// Version is that of the management server; empty means V422.
	Version string
	// Seed chooses the order of lists and how long each job takes; with 0 lists keep the order in which things were made.
	Seed uint64
	// PageSize is the size of a page that nobody asked for and the largest that may be asked for; 0 means 500.
	PageSize int
}

// Sim is the simulated management server. All methods are safe for concurrent use.
type Sim struct {
	mu     simkit.Mutex
	serial int
	nonce  string

	version    version
	activation time.Duration
	pageSize   int
	dice       *rand.Rand
	order      simkit.Disorder
	limit      apiLimit
	ignores    bool // parameters that no command has

	judge    *judge
	commands map[string]command
	names    map[string]string // of commands, by their lower case
	accounts []*account
	projects []*project
	zone     zone
	seedNet  string
	// kinds tells of which kind an ID is, also of things that are gone: the server keeps their rows.
	kinds map[string]string

	simkit.Machines[string, VM]
	networks  simkit.Table[string, Network]
	vpcs      simkit.Table[string, VPC]
	addresses simkit.Table[string, Address]
	rules     simkit.Table[string, Rule]
	firewalls simkit.Table[string, Firewall]
	forwards  simkit.Table[string, Forward]
	aclLists  simkit.Table[string, ACLList]
	aclItems  simkit.Table[string, ACLItem]
	policies  simkit.Table[string, Policy]

	jobs     []*job
	busy     map[string]time.Time // by the object on which jobs wait for each other
	held     bool
	failures []*Failure
	// mostRules is how many firewall rules and items of lists the router takes; 0 is no limit.
	mostRules int
	quota     map[string]int // public addresses that an owner may have
	source    string         // the public network
}

// zone is the only one.
type zone struct{ ID, Name string }

// New returns a simulated zone with a public network, and an isolated network of the account User.
func New(o Options) (*Sim, *simkit.Server) {
	s := &Sim{
		dice:    rand.New(rand.NewPCG(7, o.Seed)), //nolint:gosec // times that vary, and no secrets
		version: parseVersion(cmp.Or(o.Version, V422)), activation: o.Activation, pageSize: cmp.Or(o.PageSize, defaultPage),
		commands: commands(), names: map[string]string{}, kinds: map[string]string{}, busy: map[string]time.Time{}, quota: map[string]int{},
		nonce: strconv.FormatUint(rand.Uint64(), 36), //nolint:gosec // keeps tests honest, not attackers out
	}
	for name := range s.commands {
		s.names[strings.ToLower(name)] = name
	}
	s.Machines = simkit.Machines[string, VM]{
		Lock: &s.mu, Status: func(v *VM) *string { return &v.State }, Removed: s.machineRemoved,
		Make: func(name string) { s.AddVM(Spec{Name: name}) },
		About: func(v *VM) simkit.Instance {
			return simkit.Instance{Name: v.Name, ProviderID: ProviderIDPrefix + v.ID, Status: v.State}
		},
	}
	s.order.Seed(o.Seed)
	s.zone = zone{ID: s.newID("zone"), Name: ZoneName}
	s.source = s.newID("network")
	s.addAccounts()
	for n := range publicAddresses {
		s.addAddress(publicAddress(n))
	}
	s.addGlobalLists()
	s.seedNet = s.AddNetwork(NetworkSpec{Name: "cluster"})
	return s, simkit.New(s)
}

// NewServer returns the simulator for programs that know simulators only in general; token is the secret key.
func NewServer(token string, activation time.Duration, publishedLimits bool) *simkit.Server {
	s, server := New(Options{Activation: activation})
	if token != "" {
		s.SetSecret(token)
	}
	if publishedLimits {
		s.SetLimit(PublishedCalls, PublishedInterval)
	}
	return server
}

// newID returns a UUID; they count up, so that runs are alike.
func (s *Sim) newID(kind string) string {
	s.serial++
	n := uint32(s.serial) * 0x9e3779b1 //nolint:gosec // a small number
	id := fmt.Sprintf("%08x-%04x-4%03x-8%03x-%012x", n, s.serial&0xffff, len(kind), s.serial&0xfff, s.serial)
	s.kinds[id] = kind
	return id
}

// version is the management server's; its first three parts count.
type version struct {
	text                string
	major, minor, patch int
}

func parseVersion(text string) version {
	v := version{text: text}
	for i, part := range strings.Split(text, ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			break
		}
		switch i {
		case 0:
			v.major = n
		case 1:
			v.minor = n
		case 2:
			v.patch = n
		}
	}
	return v
}

// atLeast compares minor and patch releases of version 4.
func (v version) atLeast(minor, patch int) bool {
	return v.minor > minor || (v.minor == minor && v.patch >= patch)
}

// clone is a copy of what a table holds, for callers outside.
func clone[T any](s *Sim, t *simkit.Table[string, T]) []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finishJobs()
	list := make([]T, 0, len(t.Order))
	for _, v := range t.All() {
		list = append(list, *v)
	}
	return list
}

// Networks returns the networks.
func (s *Sim) Networks() []Network { return clone(s, &s.networks) }

// Addresses returns the public addresses, those that are free included.
func (s *Sim) Addresses() []Address { return clone(s, &s.addresses) }

// Rules returns the load balancer rules.
func (s *Sim) Rules() []Rule { return clone(s, &s.rules) }

// Firewalls returns the firewall rules.
func (s *Sim) Firewalls() []Firewall { return clone(s, &s.firewalls) }

// ACLItems returns the items of network ACL lists.
func (s *Sim) ACLItems() []ACLItem { return clone(s, &s.aclItems) }

// Policies returns the stickiness policies.
func (s *Sim) Policies() []Policy { return clone(s, &s.policies) }

// SetVersion changes the version of the management server.
func (s *Sim) SetVersion(text string) { s.mu.Do(func() { s.version = parseVersion(text) }) }

// IgnoreUnknown has parameters ignored that a command does not have, as real servers do, for clients that send such.
func (s *Sim) IgnoreUnknown() { s.mu.Do(func() { s.ignores = true }) }

// SetPageSize changes the global setting default.page.size.
func (s *Sim) SetPageSize(n int) { s.mu.Do(func() { s.pageSize = n }) }

// SetActivation changes how long jobs take from now on.
func (s *Sim) SetActivation(d time.Duration) { s.mu.Do(func() { s.activation = d }) }

// SetQuota limits how many public addresses an account, or a project by its ID, may have; below 0 there is no limit.
func (s *Sim) SetQuota(owner string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n < 0 {
		delete(s.quota, owner)
		return
	}
	s.quota[owner] = n
}

// CloudConfig implements simkit.CloudConfigurer.
func (s *Sim) CloudConfig(url string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("[Global]\napi-url = %s\napi-key = %s\nsecret-key = %s\n", url+APIPath, APIKey, s.accountNamed(User).secret)
}

// portOfRule ends the name of a load balancer rule that belongs to a load balancer of several.
var portOfRule = regexp.MustCompile(`-(tcp|udp|tcp-proxy)-[0-9]+$`)

// Holdings implements simkit.Cloud: rules at one address whose names differ by the port alone are one load balancer.
func (s *Sim) Holdings() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finishJobs()
	var order []string
	rules := map[string][]*Rule{}
	for _, r := range s.rules.All() {
		key := portOfRule.ReplaceAllString(r.Name, "") + " at " + r.Address
		if rules[key] == nil {
			order = append(order, key)
		}
		rules[key] = append(rules[key], r)
	}
	lines := []string{}
	for _, key := range order {
		list := rules[key]
		address, state, nodes := "", "Active", len(list[0].Members)
		if a := s.addresses.ByID[list[0].Address]; a != nil {
			address = a.Address
		}
		var ports []string
		for _, r := range list {
			ports = append(ports, fmt.Sprintf("%s/%d to %d", strings.ToUpper(r.Protocol), r.PublicPort, r.PrivatePort))
			nodes = min(nodes, len(r.Members))
			if r.State != state {
				state = r.State
			}
		}
		lines = append(lines, fmt.Sprintf("load balancer %s, %s, address %s, %s, %d nodes",
			portOfRule.ReplaceAllString(list[0].Name, ""), state, address, strings.Join(ports, ", "), nodes))
	}
	return lines
}

// State implements simkit.Cloud.
func (s *Sim) State() json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finishJobs()
	allocated := []*Address{}
	for _, a := range s.addresses.All() {
		if a.State != stateFree {
			allocated = append(allocated, a)
		}
	}
	return simkit.Snapshot(map[string]any{
		"virtualmachines": s.VMs.All(), "networks": s.networks.All(), "vpcs": s.vpcs.All(), "addresses": allocated,
		"rules": s.rules.All(), "firewallrules": s.firewalls.All(), "portforwards": s.forwards.All(), "acllists": s.aclLists.All(),
		"aclitems": s.aclItems.All(), "policies": s.policies.All(),
		"zone": s.zone, "publicnetwork": s.source, "seednetwork": s.seedNet, "version": s.version.text,
	})
}

// Actions implements simkit.Cloud.
func (s *Sim) Actions() map[string]func(json.RawMessage) error {
	return map[string]func(json.RawMessage) error{
		"power-off": simkit.SetStatus(s.SetStatus, "Stopped"),
		"power-on":  simkit.SetStatus(s.SetStatus, "Running"),
		// token changes the secret key.
		"token": simkit.SetToken(s.SetSecret),
		// activation sets how long jobs take from now on.
		"activation": simkit.Action(func(in struct{ Activation simkit.Duration }) error {
			s.SetActivation(time.Duration(in.Activation))
			return nil
		}),
		// version makes it another release, such as 4.20.1.0.
		"version": simkit.Action(func(in struct{ Version string }) error {
			s.SetVersion(in.Version)
			return nil
		}),
		// root-admin gives the key that owns the machines the rights of root admins, without which CloudStack's own controller does not start.
		"root-admin": func(json.RawMessage) error {
			s.MakeRootAdmin()
			return nil
		},
		// vpc makes the network of the seeded machines a tier of a VPC with a list of ACLs of its own.
		"vpc": func(json.RawMessage) error {
			s.MakeTier()
			return nil
		},
		// project gives the machines and their network to the project.
		"project": func(json.RawMessage) error {
			s.MoveToProject()
			return nil
		},
		// role restricts the key to some commands; none means that it may use all that users may.
		"role": simkit.Action(func(in struct{ Commands []string }) error {
			s.Restrict(APIKey, in.Commands...)
			return nil
		}),
		// reserve gives a public address to the account, as a user does who wants to use it, and says which by its text.
		"reserve": simkit.Action(func(in struct{ Address string }) error {
			_, err := s.Reserve(in.Address)
			return err
		}),
	}
}

// Distort implements simkit.Cloud.
func (s *Sim) Distort() map[string]simkit.Distortion {
	listing := func(r *http.Request) (string, bool) {
		operation, _ := s.Operation(r)
		return strings.ToLower(operation), strings.HasPrefix(operation, "list") && operation != "listCapabilities"
	}
	return map[string]simkit.Distortion{
		// empty-list: a complete listing without anything in it, as another project sees it.
		"empty-list": func(r *http.Request, _ []byte) ([]byte, bool) {
			command, is := listing(r)
			return []byte(`{"` + command + `response":{}}`), is
		},
		// torn-list: a listing that says that there is more than it holds, which is what it shows when something went meanwhile.
		"torn-list": func(r *http.Request, body []byte) ([]byte, bool) {
			_, is := listing(r)
			return s.torn(body), is
		},
	}
}

// torn takes the last element out of a list and leaves the count.
func (*Sim) torn(body []byte) []byte {
	var answer map[string]map[string]json.RawMessage
	if json.Unmarshal(body, &answer) != nil {
		return body
	}
	for _, inner := range answer {
		for key, value := range inner {
			var list []json.RawMessage
			if json.Unmarshal(value, &list) == nil && len(list) > 0 {
				inner[key], _ = json.Marshal(list[:len(list)-1]) // it was JSON before
			}
		}
	}
	text, err := json.Marshal(answer)
	if err != nil {
		return body
	}
	return text
}

// FirstPage implements simkit.Pager.
func (s *Sim) FirstPage(r *http.Request) bool {
	operation, _ := s.Operation(r)
	if !strings.HasPrefix(operation, "list") || operation == "listCapabilities" {
		return false
	}
	q := r.URL.Query()
	simkit.SetPage(r, q.Get("page"))
	if q.Has("page") {
		q.Set("page", "1")
		r.URL.RawQuery = q.Encode()
	}
	return true
}

// Followed implements simkit.Pager: the count says that there is more than was shown so far.
func (*Sim) Followed(r *http.Request, body []byte) []byte {
	var answer map[string]map[string]any
	if json.Unmarshal(body, &answer) != nil {
		return body
	}
	for _, inner := range answer {
		for _, key := range slices.Sorted(maps.Keys(inner)) {
			if list, ok := inner[key].([]any); ok && len(list) > 0 {
				inner["count"] = simkit.Page(r)*len(list) + 1
				break
			}
		}
	}
	text, err := json.Marshal(answer)
	if err != nil {
		return body
	}
	return text
}
