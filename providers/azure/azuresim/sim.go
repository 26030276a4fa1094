// Package azuresim simulates the part of Azure Resource Manager that the provider uses: compute, networks, tokens.
package azuresim

import (
	"cmp"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/azure/azurelimits"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// What the simulated subscription is called.
const (
	Subscription = "7f2f6c1e-0000-4000-8000-00000000a2a2"
	Tenant       = "0b6f1f0e-0000-4000-8000-0000000000aa"
	Group        = "k8s-RG"
	Location     = "westeurope"
	Network      = "k8s-vnet"
	Subnet       = "k8s-subnet"
	SecurityName = "k8s-nsg"
	RouteTable   = "k8s-routes"
	ScaleSet     = "aks-pool1-vmss"
)

// pageSize is small, so that listings have pages.
const pageSize = 100

// Sim is a simulated Azure.
type Sim struct {
	mu         simkit.Mutex
	secret     string
	activation time.Duration
	limits     bool
	number     int
	tokens     map[string]time.Time
	resources  map[string]*resource
	order      []string
	operations map[string]*operation
	budgets    map[string]int
	// certificate is the only login where it is set.
	certificate *x509.Certificate
	// failNext is how the next write of a kind ends.
	failNext map[string]*failure
	// refuseNext is how the next call of a method and kind is refused; meanwhile is what somebody else writes just before ours.
	refuseNext map[string]*failure
	meanwhile  map[string][]func(object)
	// rules are the legal values of fields.
	rules map[string]legalValue
	// groupsAlone is set where the credential has rights on resource groups, and not on the subscription.
	groupsAlone bool
	// given are the private addresses that frontends got. None is given twice, so that a client that loses one sees it.
	given  map[string]bool
	shared map[string]fields
}

// New returns a simulated Azure with a network, a security group and an empty scale set. Only the secret of the service principal is
// accepted; "" accepts any.
func New(secret string, activation time.Duration) (*Sim, *simkit.Server) {
	s := &Sim{
		secret: secret, activation: activation, tokens: map[string]time.Time{}, resources: map[string]*resource{},
		rules: legalValues(), shared: nestedFields(), operations: map[string]*operation{}, budgets: map[string]int{},
		failNext:   map[string]*failure{},
		refuseNext: map[string]*failure{}, meanwhile: map[string][]func(object){}, given: map[string]bool{},
	}
	s.begin()
	return s, simkit.New(s)
}

// NewServer returns the simulator for programs that know simulators only in general.
func NewServer(secret string, activation time.Duration, publishedLimits bool) *simkit.Server {
	s, server := New(secret, activation)
	s.limits = publishedLimits
	return server
}

// begin makes what a cluster finds.
func (s *Sim) begin() {
	s.put(ID("Microsoft.Network/virtualNetworks", Network), object{
		"location": Location, "properties": object{
			"addressSpace": object{"addressPrefixes": []any{"10.240.0.0/12", "fd00:10:240::/48"}},
			"subnets": []any{object{
				"name": Subnet, "properties": object{"addressPrefixes": []any{"10.240.0.0/16", "fd00:10:240::/64"}, "privateLinkServiceNetworkPolicies": "Enabled"},
			}},
		},
	})
	s.put(ID("Microsoft.Network/networkSecurityGroups", SecurityName), object{"location": Location, "properties": object{"securityRules": []any{}}})
	s.AddScaleSet(ScaleSet, "Uniform", "", []string{"1", "2", "3"})
}

// ID is that of a resource in the simulated resource group: pairs of type and name after the first.
func ID(kind, name string, more ...string) string {
	id := "/subscriptions/" + Subscription + "/resourceGroups/" + Group + "/providers/" + kind + "/" + name
	return strings.Join(append([]string{id}, more...), "/")
}

// SetSecret changes the only secret that is accepted, and forgets all tokens.
func (s *Sim) SetSecret(secret string) {
	s.mu.Do(func() { s.secret, s.tokens = secret, map[string]time.Time{} })
}

// ForgetTokens makes every token that was given invalid.
func (s *Sim) ForgetTokens() { s.mu.Do(func() { s.tokens = map[string]time.Time{} }) }

// ServeHTTP speaks the API.
func (s *Sim) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Date", time.Now().UTC().Format(http.TimeFormat))
	if s.serveIdentity(w, r) {
		return
	}
	if f := s.authorize(r); f != nil {
		f.write(w)
		return
	}
	if f := s.spend(w, r); f != nil {
		f.write(w)
		return
	}
	if f := overLimit(simkit.CheckLimits(s, azurelimits.Table, r)); f != nil {
		f.write(w)
		return
	}
	if f := s.serveARM(w, r); f != nil {
		f.write(w)
	}
}

// authorize checks the token.
func (s *Sim) authorize(r *http.Request) *failure {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch until, known := s.tokens[token]; {
	case !ok:
		return fail(http.StatusUnauthorized, "AuthenticationFailed", "Authentication failed. The 'Authorization' header is missing.")
	case s.secret == "" && !known:
		return nil
	case !known:
		return fail(http.StatusUnauthorized, "InvalidAuthenticationToken", "The access token is invalid.")
	case time.Now().After(until):
		return fail(http.StatusUnauthorized, "ExpiredAuthenticationToken", "The access token expiry UTC time is earlier than current UTC time.")
	}
	return nil
}

// budgetOf is the bucket of calls of a kind: its size, and how many come back in a second.
func budgetOf(method string) (name string, size, perSecond int) {
	switch method {
	case http.MethodGet, http.MethodHead:
		return "reads", 250, 25
	case http.MethodDelete:
		return "deletes", 200, 10
	}
	return "writes", 200, 10
}

// spend takes a call out of ARM's bucket, which refills by the second.
func (s *Sim) spend(w http.ResponseWriter, r *http.Request) *failure {
	name, size, perSecond := budgetOf(r.Method)
	header := "X-Ms-Ratelimit-Remaining-Subscription-Global-" + strings.ToUpper(name[:1]) + name[1:]
	now := int(time.Now().Unix())
	filled := s.budgets[name+"-at"]
	left := min(size, s.budgets[name]+(now-filled)*perSecond)
	if filled == 0 {
		left = size
	}
	s.budgets[name], s.budgets[name+"-at"] = left, now
	if !s.limits {
		w.Header().Set(header, strconv.Itoa(size*15-1))
		return nil
	}
	if left == 0 {
		w.Header().Set("Retry-After", "2")
		w.Header().Set(header, "0")
		return fail(http.StatusTooManyRequests, "SubscriptionRequestsThrottled",
			"Number of '%s' requests for subscription '%s' exceeded the limit. Please try again after '2' seconds.", name, Subscription)
	}
	s.budgets[name]--
	w.Header().Set(header, strconv.Itoa(left-1))
	return nil
}

// Operation implements simkit.Cloud.
func (*Sim) Operation(r *http.Request) (string, bool) {
	switch {
	case strings.Contains(r.URL.Path, "/oauth2/"), strings.Contains(r.URL.Path, "/.well-known/"), strings.HasPrefix(r.URL.Path, "/metadata/"),
		strings.HasPrefix(r.URL.Path, "/common/discovery"):
		return r.Method + " identity", false
	case strings.Contains(r.URL.Path, "/operations/"):
		return r.Method + " operation", false
	}
	p, ok := parsePath(r.URL.Path)
	if !ok {
		return r.Method + " " + r.URL.Path, r.Method != http.MethodGet
	}
	name := r.Method + " " + p.kind()
	if p.single() {
		name += "/{name}"
	}
	return name, r.Method != http.MethodGet
}

// WriteError implements simkit.Cloud.
func (*Sim) WriteError(w http.ResponseWriter, status int, message string) {
	code := map[int]string{
		http.StatusNotFound: "ResourceNotFound", http.StatusUnauthorized: "InvalidAuthenticationToken", http.StatusForbidden: "AuthorizationFailed",
		http.StatusTooManyRequests: "TooManyRequests", http.StatusConflict: "AnotherOperationInProgress", http.StatusBadRequest: "InvalidParameter",
	}[status]
	if code == "" {
		code = "InternalServerError"
	}
	fail(status, code, "%s", message).write(w)
}

// RateHeaders implements simkit.Cloud.
func (*Sim) RateHeaders(h http.Header, _, remaining int, _ time.Time) {
	h.Set("X-Ms-Ratelimit-Remaining-Subscription-Reads", strconv.Itoa(remaining))
}

// InOrder implements simkit.Refusals: what is refused for the state of things is no fault of the request.
func (*Sim) InOrder(status int, body []byte) bool {
	if status == http.StatusPreconditionFailed || status == http.StatusConflict || status == http.StatusNotFound {
		return true
	}
	for _, code := range []string{
		"LoadBalancerInUseByVirtualMachineScaleSet", "PublicIPAddressCannotBeDeleted", "ReferencedResourceNotProvisioned", "PublicIPCountLimitReached",
		"DnsRecordInUse", "PrivateIPAddressInUse", "invalid_client", "NetworkInterfaceUsesMultipleLoadBalancersOfSameType",
	} {
		if strings.Contains(string(body), `"`+code+`"`) {
			return true
		}
	}
	return status == http.StatusUnauthorized || status == http.StatusForbidden || status == http.StatusTooManyRequests
}

// FirstPage implements simkit.Pager.
func (*Sim) FirstPage(r *http.Request) bool {
	p, ok := parsePath(r.URL.Path)
	if r.Method != http.MethodGet || !ok || p.single() {
		return false
	}
	query := r.URL.Query()
	token := query.Get("$skiptoken")
	if token == "" {
		token = "1"
	}
	simkit.SetPage(r, token)
	query.Del("$skiptoken")
	r.URL.RawQuery = query.Encode()
	return true
}

// Followed implements simkit.Pager.
func (*Sim) Followed(r *http.Request, body []byte) []byte {
	var page object
	if json.Unmarshal(body, &page) != nil {
		return body
	}
	page["nextLink"] = nextLink(r, simkit.Page(r)+1)
	return encode(page)
}

// State implements simkit.Cloud.
func (s *Sim) State() json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := map[string]any{}
	for _, id := range s.order {
		state[id] = s.resources[id].doc
	}
	return simkit.Snapshot(state)
}

// Seed implements simkit.Cloud.
func (s *Sim) Seed(n int) {
	simkit.SeedNodes(n, s.Instances(), func(name string, _ int) { s.mu.Do(func() { s.addInstance(ScaleSet, name) }) })
}

// Instances implements simkit.Cloud.
func (s *Sim) Instances() []simkit.Instance {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []simkit.Instance{}
	for _, r := range append(s.all(kindInstance), s.all(kindMachine)...) {
		list = append(list, simkit.Instance{Name: computerName(r), ProviderID: providerID(r.id), Status: r.power})
	}
	return list
}

// RemoveInstance implements simkit.Cloud.
func (s *Sim) RemoveInstance(name string) error {
	return simkit.RemoveNamed(name, s.Instances(), s.RemoveByID)
}

// Holdings implements simkit.Cloud.
func (s *Sim) Holdings() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := []string{}
	for _, lb := range s.all(kindLoadBalancer) {
		ports := map[string][]string{} // by the part of names that tells the Service
		for _, f := range items(lb.doc, "properties", "frontendIPConfigurations") {
			ports[serviceOf(f)] = nil
		}
		for _, r := range items(lb.doc, "properties", "loadBalancingRules") {
			ports[serviceOf(r)] = append(ports[serviceOf(r)], fmt.Sprintf("%s/%d", text(r, "properties", "protocol"), number(r, "properties", "frontendPort")))
		}
		for _, owner := range slices.Sorted(maps.Keys(ports)) {
			lines = append(lines, fmt.Sprintf("load balancer %s, frontend %s, %s, %d nodes", lb.name(), owner, strings.Join(ports[owner], ", "), s.members(lb)))
		}
	}
	for _, r := range s.all(kindAddress) {
		if text(r.doc, "tags", "k8s-azure-service") != "" && s.frontendOf(r.id) == "" {
			lines = append(lines, fmt.Sprintf("public IP address %s, unused", r.name()))
		}
	}
	return lines
}

func serviceOf(part object) string { return text(part, "name")[:min(32, len(text(part, "name")))] }

// Environment implements simkit.Cloud.
func (*Sim) Environment(string) map[string]string { return map[string]string{} }

// CloudConfig implements simkit.CloudConfigurer.
func (s *Sim) CloudConfig(url string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	secret := s.secret
	if secret == "" {
		secret = "any"
	}
	return string(encode(object{
		"cloud": "AzureCloud", "resourceManagerEndpoint": url, "tenantId": Tenant, "subscriptionId": Subscription, "aadClientId": "app", "aadClientSecret": secret,
		"resourceGroup": Group, "location": Location, "vnetName": Network, "subnetName": Subnet, "securityGroupName": SecurityName,
		"routeTableName": RouteTable, "vmType": "vmss", "loadBalancerSku": "standard",
	}))
}

// Distort implements simkit.Cloud.
func (*Sim) Distort() map[string]simkit.Distortion {
	listing := func(r *http.Request) bool {
		p, ok := parsePath(r.URL.Path)
		return r.Method == http.MethodGet && ok && !p.single()
	}
	return map[string]simkit.Distortion{
		// empty-list: a complete listing without anything in it, as another account's credential would see it.
		"empty-list": func(r *http.Request, _ []byte) ([]byte, bool) { return []byte(`{"value":[]}`), listing(r) },
		// no-list: an answer that is JSON, and no listing.
		"no-list": func(r *http.Request, _ []byte) ([]byte, bool) { return []byte(`{}`), listing(r) },
	}
}

// Actions implements simkit.Cloud.
func (s *Sim) Actions() map[string]func(json.RawMessage) error {
	return map[string]func(json.RawMessage) error{
		"power-off": simkit.SetStatus(s.SetPower, "deallocated"), "power-on": simkit.SetStatus(s.SetPower, "running"),
		"scale-out": simkit.Action(func(asked struct {
			ScaleSet  string
			Instances int
		},
		) error {
			_, err := s.ScaleOut(cmp.Or(asked.ScaleSet, ScaleSet), asked.Instances)
			return err
		}),
	}
}

// all returns the resources of a kind in the order of their creation.
func (s *Sim) all(kind string) []*resource {
	var list []*resource
	for _, id := range s.order {
		if r := s.resources[id]; r.kind == kind {
			list = append(list, r)
		}
	}
	return list
}

func (s *Sim) drop(id string) {
	key := strings.ToLower(id)
	delete(s.resources, key)
	s.order = slices.DeleteFunc(s.order, func(o string) bool { return o == key })
}
