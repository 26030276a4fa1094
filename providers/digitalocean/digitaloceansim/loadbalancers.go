package digitaloceansim

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// LoadBalancer is a load balancer as the API shows it.
type LoadBalancer struct {
	ID                           string         `json:"id"`
	Name                         string         `json:"name"`
	IP                           string         `json:"ip"`
	IPv6                         string         `json:"ipv6,omitempty"`
	Size                         string         `json:"size,omitempty"`
	SizeUnit                     int            `json:"size_unit"`
	Type                         string         `json:"type"`
	Algorithm                    string         `json:"algorithm"`
	Status                       string         `json:"status"`
	CreatedAt                    string         `json:"created_at"`
	ForwardingRules              []Rule         `json:"forwarding_rules"`
	HealthCheck                  HealthCheck    `json:"health_check"`
	StickySessions               StickySessions `json:"sticky_sessions"`
	Region                       Region         `json:"region"`
	Tag                          string         `json:"tag"`
	Tags                         []string       `json:"tags,omitempty"`
	DropletIDs                   []int          `json:"droplet_ids"`
	RedirectHTTPToHTTPS          bool           `json:"redirect_http_to_https"`
	EnableProxyProtocol          bool           `json:"enable_proxy_protocol"`
	EnableBackendKeepalive       bool           `json:"enable_backend_keepalive"`
	DisableLetsEncryptDNSRecords bool           `json:"disable_lets_encrypt_dns_records"`
	VPCUUID                      string         `json:"vpc_uuid"`
	SubnetUUID                   string         `json:"subnet_uuid,omitempty"`
	ProjectID                    string         `json:"project_id"`
	HTTPIdleTimeoutSeconds       int            `json:"http_idle_timeout_seconds"`
	Firewall                     Firewall       `json:"firewall"`
	Network                      string         `json:"network"`
	NetworkStack                 string         `json:"network_stack"`
	TLSCipherPolicy              string         `json:"tls_cipher_policy"`

	activeAt time.Time
	// resizable is when the size may change: an hour after the creation and after each change.
	resizable time.Time
	address   int
	// ownIP is an address of the user's own that the load balancer was created with.
	ownIP string
}

// resizePause is how long the API refuses to change a size again.
const resizePause = time.Hour

// units are the nodes that a size stands for.
func units(slug string, count int) int {
	return first(map[string]int{"lb-small": 1, "lb-medium": 3, "lb-large": 6}[slug], count, 1)
}

// Rule is a forwarding rule.
type Rule struct {
	EntryProtocol  string `json:"entry_protocol"`
	EntryPort      int    `json:"entry_port"`
	TargetProtocol string `json:"target_protocol"`
	TargetPort     int    `json:"target_port"`
	CertificateID  string `json:"certificate_id"`
	TLSPassthrough bool   `json:"tls_passthrough"`
}

// HealthCheck says how backends are checked.
type HealthCheck struct {
	Protocol               string `json:"protocol"`
	Port                   int    `json:"port"`
	Path                   string `json:"path"`
	CheckIntervalSeconds   int    `json:"check_interval_seconds"`
	ResponseTimeoutSeconds int    `json:"response_timeout_seconds"`
	HealthyThreshold       int    `json:"healthy_threshold"`
	UnhealthyThreshold     int    `json:"unhealthy_threshold"`
	ProxyProtocol          *bool  `json:"proxy_protocol,omitempty"`
}

// StickySessions is session affinity.
type StickySessions struct {
	Type             string `json:"type"`
	CookieName       string `json:"cookie_name,omitempty"`
	CookieTTLSeconds int    `json:"cookie_ttl_seconds,omitempty"`
}

// Firewall is a load balancer's own firewall.
type Firewall struct {
	Allow []string `json:"allow"`
	Deny  []string `json:"deny"`
}

// request is the body of POST and PUT. Fields that the public description leaves out but clients send are known too.
type request struct {
	Name                         string          `json:"name"`
	Algorithm                    string          `json:"algorithm"`
	Region                       string          `json:"region"`
	Size                         string          `json:"size"`
	SizeUnit                     *int            `json:"size_unit"`
	Type                         string          `json:"type"`
	ForwardingRules              []Rule          `json:"forwarding_rules"`
	HealthCheck                  *HealthCheck    `json:"health_check"`
	StickySessions               *StickySessions `json:"sticky_sessions"`
	DropletIDs                   []int           `json:"droplet_ids"`
	Tag                          string          `json:"tag"`
	Tags                         []string        `json:"tags"`
	RedirectHTTPToHTTPS          bool            `json:"redirect_http_to_https"`
	EnableProxyProtocol          bool            `json:"enable_proxy_protocol"`
	EnableBackendKeepalive       bool            `json:"enable_backend_keepalive"`
	VPCUUID                      string          `json:"vpc_uuid"`
	SubnetUUID                   string          `json:"subnet_uuid"`
	DisableLetsEncryptDNSRecords bool            `json:"disable_lets_encrypt_dns_records"`
	ProjectID                    string          `json:"project_id"`
	HTTPIdleTimeoutSeconds       int             `json:"http_idle_timeout_seconds"`
	Firewall                     *Firewall       `json:"firewall"`
	Network                      string          `json:"network"`
	NetworkStack                 string          `json:"network_stack"`
	TLSCipherPolicy              string          `json:"tls_cipher_policy"`
	IP                           string          `json:"ip"`
}

// sizeUnit is that of the request, or the default.
func (r *request) sizeUnit() int {
	if r.SizeUnit == nil {
		return 1
	}
	return *r.SizeUnit
}

const (
	regional     = "REGIONAL"
	networkType  = "REGIONAL_NETWORK"
	external     = "EXTERNAL"
	internal     = "INTERNAL"
	stackV4      = "IPV4"
	stackDual    = "DUALSTACK"
	statusNew    = "new"
	statusActive = "active"
)

var namePattern = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,253}[A-Za-z0-9.])?$`)

// check refuses what the API refuses, with one message for the first fault.
func (s *Sim) check(r *request) error {
	for _, rule := range []struct {
		broken  bool
		message string
	}{
		{!namePattern.MatchString(r.Name), "name is invalid"},
		{len(r.ForwardingRules) == 0, "forwarding_rules must hold at least one rule"},
		{r.Size != "" && r.SizeUnit != nil, "size and size_unit are mutually exclusive"},
		{r.SizeUnit != nil && (*r.SizeUnit < 1 || *r.SizeUnit > 100), "size_unit must be between 1 and 100"},
		{r.Tag != "" && len(r.DropletIDs) > 0, "droplet_ids and tag are mutually exclusive"},
		{!within(r.HTTPIdleTimeoutSeconds, 30, 600), "http_idle_timeout_seconds must be between 30 and 600"},
		{r.Network == internal && r.NetworkStack == stackDual, "an INTERNAL load balancer cannot be DUALSTACK"},
	} {
		if rule.broken {
			return invalid("%s", rule.message)
		}
	}
	for _, e := range []struct {
		field, value string
		legal        []string
	}{
		{"type", r.Type, []string{"", regional, networkType, "GLOBAL"}},
		{"network", r.Network, []string{"", external, internal}},
		{"network_stack", r.NetworkStack, []string{"", stackV4, stackDual}},
		{"size", r.Size, []string{"", "lb-small", "lb-medium", "lb-large"}},
		{"algorithm", r.Algorithm, []string{"", "round_robin", "least_connections"}},
		{"tls_cipher_policy", r.TLSCipherPolicy, []string{"", "DEFAULT", "STRONG"}},
	} {
		if !slices.Contains(e.legal, e.value) {
			return invalid("%s %q is invalid", e.field, e.value)
		}
	}
	return errors.Join(
		s.checkReferences(r), checkTexts(r), checkFirewall(r.Firewall), checkSticky(r.StickySessions), s.checkRules(r.ForwardingRules),
		checkHealth(r.HealthCheck),
	)
}

// The forms of texts in the API's published description.
var (
	tagForm    = regexp.MustCompile(`^[a-zA-Z0-9_:-]{1,255}$`)
	uuidForm   = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)
	cookieForm = regexp.MustCompile("^[a-zA-Z0-9!#$%&'*+.^_`|~-]*$")
	pathForm   = regexp.MustCompile(`^(/[!-~]*)?$`)
)

func checkTexts(r *request) error {
	for _, t := range r.Tags {
		if !tagForm.MatchString(t) {
			return invalid("tag %q is invalid", t)
		}
	}
	for field, id := range map[string]string{"project_id": r.ProjectID, "subnet_uuid": r.SubnetUUID, "vpc_uuid": r.VPCUUID} {
		if id != "" && !uuidForm.MatchString(id) {
			return invalid("%s %q is invalid", field, id)
		}
	}
	if _, err := netip.ParseAddr(r.IP); r.IP != "" && err != nil {
		return invalid("ip %q is invalid", r.IP)
	}
	if r.StickySessions != nil && !cookieForm.MatchString(r.StickySessions.CookieName) {
		return invalid("cookie_name %q is invalid", r.StickySessions.CookieName)
	}
	if r.HealthCheck != nil && !pathForm.MatchString(r.HealthCheck.Path) {
		return invalid("health_check path %q is invalid", r.HealthCheck.Path)
	}
	return nil
}

// within reports whether a number is absent or between two bounds.
func within(v, low, high int) bool { return v == 0 || (v >= low && v <= high) }

func (s *Sim) checkReferences(r *request) error {
	if _, ok := regionOf(r.Region); !ok {
		return invalid("region %q is invalid", r.Region)
	}
	for _, id := range r.DropletIDs {
		if s.VMs.ByID[id] == nil {
			return invalid("droplet %d does not exist", id)
		}
	}
	return nil
}

func checkSticky(s *StickySessions) error {
	if s != nil && !slices.Contains([]string{"", "cookies", "none"}, s.Type) {
		return invalid("sticky_sessions type %q is invalid", s.Type)
	}
	if s != nil && s.Type == "cookies" && (s.CookieName == "" || s.CookieTTLSeconds <= 0) {
		return invalid("sticky_sessions of type cookies need cookie_name and cookie_ttl_seconds")
	}
	return nil
}

func checkFirewall(f *Firewall) error {
	if f == nil {
		return nil
	}
	for _, rule := range append(slices.Clone(f.Allow), f.Deny...) {
		if !legalSource(rule) {
			return invalid("firewall rule %q is invalid", rule)
		}
	}
	return nil
}

func legalSource(rule string) bool {
	if len(rule) > 3 && rule[:3] == "ip:" {
		ip, err := netip.ParseAddr(rule[3:])
		return err == nil && ip.Is4()
	}
	if len(rule) > 5 && rule[:5] == "cidr:" {
		network, err := netip.ParsePrefix(rule[5:])
		return err == nil && network.Addr().Is4()
	}
	return false
}

func (s *Sim) checkRules(rules []Rule) error {
	seen := map[string]bool{}
	for _, f := range rules {
		if err := s.checkRule(f); err != nil {
			return err
		}
		layer4 := "tcp"
		if f.EntryProtocol == "udp" || f.EntryProtocol == "http3" {
			layer4 = "udp"
		}
		key := fmt.Sprint(layer4, f.EntryPort)
		if seen[key] {
			return invalid("two forwarding rules have entry port %d", f.EntryPort)
		}
		seen[key] = true
	}
	return nil
}

func (s *Sim) checkRule(f Rule) error {
	portOK := func(p int) bool { return p >= 1 && p <= 65535 }
	tls := f.EntryProtocol == "https" || f.EntryProtocol == "http2" || f.EntryProtocol == "http3"
	switch {
	case !slices.Contains([]string{"http", "https", "http2", "http3", "tcp", "udp"}, f.EntryProtocol),
		!slices.Contains([]string{"http", "https", "http2", "tcp", "udp"}, f.TargetProtocol):
		return invalid("forwarding rule with protocols %q and %q is invalid", f.EntryProtocol, f.TargetProtocol)
	case (f.EntryProtocol == "udp") != (f.TargetProtocol == "udp"):
		return invalid("udp can only be forwarded to udp")
	case !portOK(f.EntryPort), !portOK(f.TargetPort):
		return invalid("forwarding rule ports must be between 1 and 65535")
	case f.EntryPort >= 50053 && f.EntryPort <= 50055:
		return invalid("entry port %d is reserved", f.EntryPort)
	case tls && (f.CertificateID == "") == !f.TLSPassthrough:
		return invalid("%s on port %d needs a certificate or tls_passthrough", f.EntryProtocol, f.EntryPort)
	case f.CertificateID != "" && s.certificates[f.CertificateID] == nil:
		return invalid("certificate %s does not exist", f.CertificateID)
	}
	return nil
}

func checkHealth(h *HealthCheck) error {
	if h == nil {
		return nil
	}
	switch {
	case !slices.Contains([]string{"", "http", "https", "tcp"}, h.Protocol):
		return invalid("health_check protocol %q is invalid", h.Protocol)
	case h.Port < 0 || h.Port > 65535:
		return invalid("health_check port is invalid")
	case !within(h.CheckIntervalSeconds, 3, 300) || !within(h.ResponseTimeoutSeconds, 3, 300):
		return invalid("health_check interval and timeout must be between 3 and 300")
	case !within(h.HealthyThreshold, 2, 10) || !within(h.UnhealthyThreshold, 2, 10):
		return invalid("health_check thresholds must be between 2 and 10")
	}
	return nil
}

func first[T comparable](values ...T) T {
	var zero T
	for _, v := range values {
		if v != zero {
			return v
		}
	}
	return zero
}

// set takes over a request: what it does not name goes back to its default, on PUT as well as on POST.
func (lb *LoadBalancer) set(r *request) {
	lb.Name, lb.Algorithm = r.Name, first(r.Algorithm, "round_robin")
	lb.Size, lb.SizeUnit = r.Size, r.sizeUnit()
	lb.ForwardingRules, lb.DropletIDs = r.ForwardingRules, append([]int{}, r.DropletIDs...)
	lb.Tag = r.Tag
	lb.RedirectHTTPToHTTPS, lb.EnableProxyProtocol = r.RedirectHTTPToHTTPS, r.EnableProxyProtocol
	lb.EnableBackendKeepalive = r.EnableBackendKeepalive
	lb.DisableLetsEncryptDNSRecords, lb.SubnetUUID = r.DisableLetsEncryptDNSRecords, r.SubnetUUID
	lb.ProjectID, lb.TLSCipherPolicy = first(r.ProjectID, defaultProject), first(r.TLSCipherPolicy, "DEFAULT")
	lb.HTTPIdleTimeoutSeconds = first(r.HTTPIdleTimeoutSeconds, 60)
	lb.Firewall = Firewall{Allow: []string{}, Deny: []string{}}
	if r.Firewall != nil {
		lb.Firewall.Allow = append(lb.Firewall.Allow, r.Firewall.Allow...)
		lb.Firewall.Deny = append(lb.Firewall.Deny, r.Firewall.Deny...)
	}
	lb.StickySessions = StickySessions{Type: "none"}
	if r.StickySessions != nil {
		lb.StickySessions = *r.StickySessions
		lb.StickySessions.Type = first(lb.StickySessions.Type, "none")
	}
	h := HealthCheck{}
	if r.HealthCheck != nil {
		h = *r.HealthCheck
	}
	h.Protocol, h.Port = first(h.Protocol, "http"), first(h.Port, 80)
	h.CheckIntervalSeconds, h.ResponseTimeoutSeconds = first(h.CheckIntervalSeconds, 10), first(h.ResponseTimeoutSeconds, 5)
	h.UnhealthyThreshold, h.HealthyThreshold = first(h.UnhealthyThreshold, 5), first(h.HealthyThreshold, 3)
	if h.Protocol != "tcp" {
		h.Path = first(h.Path, "/")
	}
	lb.HealthCheck = h
}

const defaultProject = "00000002-5eed-4d00-8000-0000000000ff"

func (s *Sim) createLoadBalancer(r *http.Request) (int, any, error) {
	var in request
	if err := decode(r, &in); err != nil {
		return 0, nil, err
	}
	if err := s.check(&in); err != nil {
		return 0, nil, err
	}
	region, _ := regionOf(in.Region)
	lb := &LoadBalancer{
		ID: s.uuid(), Type: first(in.Type, regional), Status: statusNew, CreatedAt: timestamp(), Region: region, Tags: in.Tags,
		VPCUUID: first(in.VPCUUID, defaultVPC), Network: first(in.Network, external), NetworkStack: first(in.NetworkStack, stackV4),
		activeAt: time.Now().Add(s.activation), resizable: time.Now().Add(resizePause), address: s.serial, ownIP: in.IP,
	}
	lb.set(&in)
	for _, t := range in.Tags {
		s.tagLocked(t)["load_balancer:"+lb.ID] = true
	}
	s.loadBalancers[lb.ID] = lb
	return http.StatusAccepted, map[string]any{"load_balancer": s.shown(lb)}, nil
}

// settle makes a load balancer active whose time has come.
func (lb *LoadBalancer) settle() *LoadBalancer {
	if lb.Status != statusNew || time.Now().Before(lb.activeAt) {
		return lb
	}
	lb.Status = statusActive
	lb.IP = first(lb.ownIP, nth(firstPublic, 1<<16+lb.address))
	if lb.Network == internal {
		lb.IP = nth(firstPrivate, 1<<16+lb.address)
	}
	if lb.NetworkStack == stackDual {
		lb.IPv6 = nthV6(1<<16 + lb.address)
	}
	return lb
}

func (lb *LoadBalancer) copy() LoadBalancer {
	c := *lb
	c.DropletIDs, c.ForwardingRules = slices.Clone(lb.DropletIDs), slices.Clone(lb.ForwardingRules)
	return c
}

// shown is a load balancer as the API answers with it: its lists have no order.
func (s *Sim) shown(lb *LoadBalancer) LoadBalancer {
	c := lb.copy()
	c.DropletIDs, c.ForwardingRules = simkit.Shuffled(&s.disorder, c.DropletIDs), simkit.Shuffled(&s.disorder, c.ForwardingRules)
	c.Tags = simkit.Shuffled(&s.disorder, c.Tags)
	c.Firewall.Allow, c.Firewall.Deny = simkit.Shuffled(&s.disorder, c.Firewall.Allow), simkit.Shuffled(&s.disorder, c.Firewall.Deny)
	return c
}

func (s *Sim) listLoadBalancers(r *http.Request) (int, any, error) {
	seen, lags := s.listed.Seen()
	if !lags {
		seen.loadBalancers = s.loadBalancersLocked()
	}
	all := []LoadBalancer{}
	for i := range seen.loadBalancers {
		all = append(all, s.shown(&seen.loadBalancers[i]))
	}
	return list(r, "load_balancers", simkit.Scattered(&s.disorder, all, func(lb LoadBalancer) string { return lb.ID }))
}

func (s *Sim) loadBalancersLocked() []LoadBalancer {
	all := []LoadBalancer{}
	for _, lb := range sorted(s.loadBalancers) {
		all = append(all, lb.settle().copy())
	}
	return all
}

// LoadBalancers returns copies of all load balancers in order of creation.
func (s *Sim) LoadBalancers() []LoadBalancer {
	return simkit.Get(&s.mu, func() []LoadBalancer { return s.loadBalancersLocked() })
}

// ChangeLoadBalancer changes a load balancer behind the API's back, as a user does in the control panel.
func (s *Sim) ChangeLoadBalancer(id string, change func(*LoadBalancer)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s.loadBalancers[id])
	s.listed.Wrote(s.listedLocked())
}

// AgeLoadBalancer lets time pass for a load balancer.
func (s *Sim) AgeLoadBalancer(id string, by time.Duration) {
	s.ChangeLoadBalancer(id, func(lb *LoadBalancer) {
		lb.activeAt, lb.resizable = lb.activeAt.Add(-by), lb.resizable.Add(-by)
	})
}

func (s *Sim) loadBalancerLocked(id string) (*LoadBalancer, error) {
	lb := s.loadBalancers[id]
	if lb == nil {
		return nil, errNotFound
	}
	return lb.settle(), nil
}

func (s *Sim) getLoadBalancer(id string) (int, any, error) {
	lb, err := s.loadBalancerLocked(id)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, map[string]any{"load_balancer": s.shown(lb)}, nil
}

// replaceLoadBalancer: what cannot change after creation is refused where it differs.
func (s *Sim) replaceLoadBalancer(r *http.Request, id string) (int, any, error) {
	lb, err := s.loadBalancerLocked(id)
	if err != nil {
		return 0, nil, err
	}
	var in request
	if err := decode(r, &in); err != nil {
		return 0, nil, err
	}
	if err := s.check(&in); err != nil {
		return 0, nil, err
	}
	for _, f := range []struct{ field, was, is string }{
		{"type", lb.Type, in.Type},
		{"network", lb.Network, in.Network},
		{"network_stack", lb.NetworkStack, in.NetworkStack},
		{"region", lb.Region.Slug, in.Region},
		{"vpc_uuid", lb.VPCUUID, in.VPCUUID},
	} {
		if f.is != "" && f.is != f.was {
			return 0, nil, invalid("%s of a load balancer cannot change", f.field)
		}
	}
	resized := units(in.Size, in.sizeUnit()) != units(lb.Size, lb.SizeUnit)
	if resized && time.Now().Before(lb.resizable) {
		return 0, nil, invalid("a load balancer can be resized once an hour, and not in its first hour")
	}
	if resized {
		lb.resizable = time.Now().Add(resizePause)
	}
	lb.set(&in)
	return http.StatusOK, map[string]any{"load_balancer": s.shown(lb)}, nil
}

func (s *Sim) deleteLoadBalancer(id string) (int, any, error) {
	if _, err := s.loadBalancerLocked(id); err != nil {
		return 0, nil, err
	}
	delete(s.loadBalancers, id)
	for _, resources := range s.tags {
		delete(resources, "load_balancer:"+id)
	}
	return http.StatusNoContent, nil, nil
}

// RemoveLoadBalancers deletes all load balancers, as somebody does by hand.
func (s *Sim) RemoveLoadBalancers() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range maps.Clone(s.loadBalancers) {
		_, _, _ = s.deleteLoadBalancer(id) // it exists
	}
}

func (s *Sim) changeDroplets(r *http.Request, id string) (int, any, error) {
	lb, err := s.loadBalancerLocked(id)
	if err != nil {
		return 0, nil, err
	}
	var in struct {
		DropletIDs []int `json:"droplet_ids"`
	}
	if err := decode(r, &in); err != nil {
		return 0, nil, err
	}
	if lb.Tag != "" {
		return 0, nil, invalid("the load balancer selects its droplets by tag")
	}
	for _, d := range in.DropletIDs {
		if s.VMs.ByID[d] == nil {
			return 0, nil, invalid("droplet %d does not exist", d)
		}
	}
	lb.DropletIDs = slices.DeleteFunc(lb.DropletIDs, func(d int) bool { return slices.Contains(in.DropletIDs, d) })
	if r.Method == http.MethodPost {
		lb.DropletIDs = append(lb.DropletIDs, in.DropletIDs...)
	}
	return http.StatusNoContent, nil, nil
}
