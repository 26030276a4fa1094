package digitalocean

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/digitalocean/godo"
	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/utils/ptr"

	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/providers/kit/sources"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// This file computes desired load balancers and the calls towards them, without making calls.

const (
	// kubeProxyHealthPort is the port of kube-proxy's health check.
	kubeProxyHealthPort = 10256
	healthPath          = "/healthz"
	defaultIdleTimeout  = 60
	implicitTLSPort     = 443

	fieldSize     = "size"
	fieldSizeUnit = "size_unit"
	fieldDroplets = "droplet_ids"

	statusActive = "active"
	statusNew    = "new"
)

// backend is a node with the families by which load balancers can reach it.
type backend struct {
	node      string
	dropletID int
	// publicV4 and publicV6 are set if the node has a public address of the family, private for an address in the VPC.
	publicV4, publicV6, private bool
}

// backendSet holds the backends of a load balancer. Services share it, so it is immutable.
type backendSet struct {
	// list is sorted by droplet ID; ids holds these IDs.
	list []backend
	ids  []int
	// emptyBecause is the reason for an empty list.
	emptyBecause error
}

// errNoBackends is wrapped by the error for a Service without usable nodes.
var errNoBackends = errors.New("no node can be a backend")

// isReachable reports whether a load balancer of this type and network can reach the node, by the rules of DigitalOcean's own controller.
func (b backend) isReachable(lbType, network string) bool {
	if b.publicV4 || network == godo.LoadBalancerNetworkTypeInternal {
		return true
	}
	return lbType == godo.LoadBalancerTypeRegional && b.private && !b.publicV6
}

// eligibleBackends returns the backends for this type and network, sorted by droplet ID.
func eligibleBackends(backends []backend, lbType, network string) ([]backend, error) {
	kept := make([]backend, 0, len(backends))
	var dropped []string
	for _, b := range backends {
		if b.isReachable(lbType, network) {
			kept = append(kept, b)
		} else {
			dropped = append(dropped, b.node)
		}
	}
	slices.SortFunc(kept, func(a, b backend) int { return a.dropletID - b.dropletID })
	if len(kept) > 0 {
		return kept, nil
	}
	switch {
	case len(dropped) > 0 && lbType == godo.LoadBalancerTypeRegionalNetwork:
		return nil, fmt.Errorf("%w: %s without a public IPv4 address; set the annotation %s to %s or the annotation %s to %s",
			errNoBackends, nodeNames(dropped, 3), annotationType, godo.LoadBalancerTypeRegional,
			annotationNetwork, godo.LoadBalancerNetworkTypeInternal)
	case len(dropped) > 0:
		return nil, fmt.Errorf("%w: %s without an address that the load balancer can reach", errNoBackends, nodeNames(dropped, 3))
	}
	return nil, fmt.Errorf("%w: every node is excluded, is being deleted, or has no provider ID yet", errNoBackends)
}

// nodeNames lists up to most names, sorted, and the number of others.
func nodeNames(names []string, most int) string {
	names = slices.Sorted(slices.Values(names))
	text := strings.Join(names[:min(most, len(names))], ", ")
	if more := len(names) - most; more > 0 {
		text += fmt.Sprintf(" [+%d more]", more)
	}
	return "nodes " + text
}

// networkStack returns the address families of a new load balancer. Network load balancers need IPv6 on every node to have it themselves.
func networkStack(s settings, backends []backend) (string, error) {
	var onlyV4 []string
	dual := false
	for _, b := range backends {
		switch {
		case b.publicV4 && b.publicV6:
			dual = true
		case b.publicV4:
			onlyV4 = append(onlyV4, b.node)
		}
	}
	isNetwork := s.Type == godo.LoadBalancerTypeRegionalNetwork
	switch {
	case s.NetworkStack == godo.LoadBalancerNetworkStackDualstack && isNetwork && len(onlyV4) > 0:
		return "", &schema.Problem{
			Place: "annotation " + annotationNetworkStack, Value: s.NetworkStack,
			Reason: "needs IPv6 on every node, but there are " + nodeNames(onlyV4, 3) + " with IPv4 only; use " + godo.LoadBalancerNetworkStackIPv4,
		}
	case s.NetworkStack != "":
		return s.NetworkStack, nil
	case s.Network == godo.LoadBalancerNetworkTypeInternal, isNetwork && (!dual || len(onlyV4) > 0):
		return godo.LoadBalancerNetworkStackIPv4, nil
	}
	return godo.LoadBalancerNetworkStackDualstack, nil
}

// checkService implements registry.Provider.CheckService.
func checkService(in registry.Inputs, service *v1.Service) (warnings, err error) {
	c, _ := Options.Parse(in.Sources) // a missing token does not affect Services
	return validate(service, c.DefaultType)
}

// validate checks a Service without calls.
func validate(service *v1.Service, defaultType string) (warnings, err error) {
	s, warnings, err := parseSettings(service.Annotations, defaultType, "")
	warned, refused := s.judge(service)
	warnings = errors.Join(warnings, warned)
	if err != nil {
		return warnings, err
	}
	_, checkErr := healthCheck(service, s)
	_, firewallErr := firewallRules(service, s)
	_, rulesErr := forwardingRules(service, s, cmp.Or(s.CertificateID, s.CertificateName)) // only the cloud knows the certificate's ID
	return warnings, errors.Join(refused, rulesErr, checkErr, firewallErr, checkOwnName(service, s))
}

// defaultNames matches the names that controllers give.
var defaultNames = regexp.MustCompile(`^a[0-9a-f]{31}$`)

// checkOwnName refuses the default name of another Service's load balancer.
func checkOwnName(service *v1.Service, s settings) error {
	if defaultNames.MatchString(s.Name) && s.Name != defaultName(service) {
		return &schema.Problem{Place: "annotation " + annotationName, Value: s.Name, Reason: "has the form of names that other Services' load balancers get from their UIDs; choose another one"}
	}
	return nil
}

// desire computes the whole load balancer. certificateID is the resolved certificate, and have is the present load balancer, or nil. For
// fields fixed at creation, keepFixed later inserts the actual values.
func desire(
	c Config, region string, service *v1.Service, s settings, certificateID string, backends backendSet, have *godo.LoadBalancer,
) (*godo.LoadBalancerRequest, error) {
	rules, rulesErr := forwardingRules(service, s, certificateID)
	check, checkErr := healthCheck(service, s)
	firewall, firewallErr := firewallRules(service, s)
	stack := s.NetworkStack
	var stackErr error
	if have == nil {
		stack, stackErr = networkStack(s, backends.list)
	}
	if err := errors.Join(rulesErr, checkErr, firewallErr, stackErr); err != nil {
		return nil, err
	}
	r := &godo.LoadBalancerRequest{
		Name: loadBalancerName(service, s), Algorithm: s.Algorithm, Region: region,
		SizeSlug: s.SizeSlug, SizeUnit: uint32(s.SizeUnit), //nolint:gosec // the table bounds it to 0..200
		Type: s.Type, ForwardingRules: rules, HealthCheck: check, StickySessions: stickySessions(s),
		RedirectHttpToHttps: s.Redirect, EnableProxyProtocol: s.ProxyProtocol, EnableBackendKeepalive: s.Keepalive,
		VPCUUID: c.VPCID, VPCSubnetUUID: strings.TrimSpace(s.Subnet), DisableLetsEncryptDNSRecords: new(s.NoLetsEncryptDNS),
		Firewall: firewall, Network: s.Network, NetworkStack: stack, IP: strings.TrimSpace(s.IP),
		DropletIDs: backends.ids,
	}
	if s.IdleTimeout > 0 {
		r.HTTPIdleTimeoutSeconds = new(uint64(s.IdleTimeout))
	}
	if c.ClusterID != "" {
		r.Tags = []string{clusterTag(c.ClusterID)}
	}
	return r, nil
}

func clusterTag(clusterID string) string { return "k8s:" + clusterID }

// defaultName is the name that all controllers for DigitalOcean use by default.
func defaultName(service *v1.Service) string { return cloudprovider.DefaultLoadBalancerName(service) }

func loadBalancerName(service *v1.Service, s settings) string {
	return cmp.Or(s.Name, defaultName(service))
}

func stickySessions(s settings) *godo.StickySessions {
	if s.StickyType != stickyCookies {
		return &godo.StickySessions{Type: stickyNone}
	}
	return &godo.StickySessions{Type: stickyCookies, CookieName: s.StickyCookieName, CookieTtlSeconds: s.StickyCookieTTL}
}

// forwardingRules returns one rule for each port, in the Service's order, then the HTTP/3 rule.
func forwardingRules(service *v1.Service, s settings, certificateID string) ([]godo.ForwardingRule, error) {
	var rules []godo.ForwardingRule
	var problems []error
	for _, port := range service.Spec.Ports {
		rule, err := forwardingRule(port, s, certificateID)
		if err != nil {
			problems = append(problems, fmt.Errorf("port %d: %w", port.Port, err))
			continue
		}
		rules = append(rules, rule)
	}
	http3, err := http3Rules(service, s, certificateID)
	rules, problems = append(rules, http3...), append(problems, err)
	if len(service.Spec.Ports) == 0 {
		problems = append(problems, errors.New("the Service has no ports"))
	}
	return rules, errors.Join(problems...)
}

func forwardingRule(port v1.ServicePort, s settings, certificateID string) (godo.ForwardingRule, error) {
	number, nodePort := int(port.Port), int(port.NodePort)
	if s.Type == godo.LoadBalancerTypeRegionalNetwork {
		// Packets reach the node unchanged, so the target is the Service port itself.
		protocol := strings.ToLower(string(port.Protocol))
		return godo.ForwardingRule{EntryProtocol: protocol, EntryPort: number, TargetProtocol: protocol, TargetPort: number}, nil
	}
	rule := godo.ForwardingRule{EntryProtocol: entryProtocol(port, s, certificateID), EntryPort: number, TargetPort: nodePort}
	rule.TargetProtocol = rule.EntryProtocol
	switch {
	case rule.EntryProtocol == protocolHTTP3:
		return godo.ForwardingRule{}, fmt.Errorf("a load balancer speaks no %s to droplets; give %s another value, and name the port in %s to serve %[1]s as well",
			protocolHTTP3, annotationProtocol, annotationHTTP3Port)
	case rule.EntryProtocol != protocolHTTPS && rule.EntryProtocol != protocolHTTP2: // the same protocol on both sides
	case s.TLSPassthrough:
		rule.TlsPassthrough = true
	case certificateID != "":
		rule.CertificateID, rule.TargetProtocol = certificateID, protocolHTTP
	default:
		return godo.ForwardingRule{}, fmt.Errorf("%s needs a certificate or TLS passthrough; set %s, %s or %s",
			rule.EntryProtocol, annotationCertificateID, annotationCertificateName, annotationTLSPassthrough)
	}
	return rule, nil
}

// entryProtocol: UDP takes precedence over the lists, later lists over earlier ones, and lists over the default.
func entryProtocol(port v1.ServicePort, s settings, certificateID string) string {
	number := int(port.Port)
	tls := s.TLSPorts
	if len(tls) == 0 && (certificateID != "" || s.TLSPassthrough) && !slices.Contains(s.HTTP2Ports, implicitTLSPort) {
		tls = []int{implicitTLSPort}
	}
	switch {
	case port.Protocol == v1.ProtocolUDP:
		return protocolUDP
	case slices.Contains(s.HTTP2Ports, number):
		return protocolHTTP2
	case slices.Contains(tls, number):
		return protocolHTTPS
	case slices.Contains(s.HTTPPorts, number):
		return protocolHTTP
	}
	return s.Protocol
}

// http3Rules returns the rule for the port that speaks HTTP/3 as well, if the Service has that port.
func http3Rules(service *v1.Service, s settings, certificateID string) ([]godo.ForwardingRule, error) {
	switch {
	case s.HTTP3Port == 0 || s.Type != godo.LoadBalancerTypeRegional:
		return nil, nil
	case s.TLSPassthrough:
		return nil, errors.New("annotation " + annotationHTTP3Port + ": excludes " + annotationTLSPassthrough)
	case certificateID == "":
		return nil, errors.New(
			"annotation " + annotationHTTP3Port + ": needs a certificate; set " + annotationCertificateID + " or " + annotationCertificateName,
		)
	}
	for _, port := range service.Spec.Ports {
		if int(port.Port) == s.HTTP3Port {
			return []godo.ForwardingRule{{
				EntryProtocol: protocolHTTP3, EntryPort: s.HTTP3Port, TargetProtocol: protocolHTTP, TargetPort: int(port.NodePort),
				CertificateID: certificateID,
			}}, nil
		}
	}
	return nil, nil
}

// healthCheck checks kube-proxy by default, because it knows whether the node serves the Service. kube-proxy does not support the PROXY
// protocol, so it is off there.
func healthCheck(service *v1.Service, s settings) (*godo.HealthCheck, error) {
	h := &godo.HealthCheck{
		CheckIntervalSeconds: s.CheckInterval, ResponseTimeoutSeconds: s.CheckTimeout,
		UnhealthyThreshold: s.UnhealthyThreshold, HealthyThreshold: s.HealthyThreshold,
	}
	if !s.OverrideCheck {
		h.Protocol, h.Path, h.Port, h.ProxyProtocol = protocolHTTP, healthPath, kubeProxyHealthPort, new(false)
		if service.Spec.ExternalTrafficPolicy == v1.ServiceExternalTrafficPolicyLocal && service.Spec.HealthCheckNodePort != 0 {
			h.Port = int(service.Spec.HealthCheckNodePort)
		}
		return h, nil
	}
	h.Protocol, h.Path = s.CheckProtocol, s.CheckPath
	if h.Protocol == "" {
		h.Protocol = protocolTCP
		if h.Path != "" {
			h.Protocol = protocolHTTP
		}
	}
	for _, port := range service.Spec.Ports {
		if port.Protocol == v1.ProtocolTCP && (s.CheckPort == 0 || s.CheckPort == int(port.Port)) {
			h.Port = int(port.NodePort)
			return h, nil
		}
	}
	if s.CheckPort != 0 {
		return nil, &schema.Problem{Place: "annotation " + annotationCheckPort, Value: strconv.Itoa(s.CheckPort), Reason: "is not a TCP port of the Service"}
	}
	return nil, &schema.Problem{Place: "annotation " + annotationOverrideCheck, Reason: "needs a TCP port, and the Service has none; remove the annotation"}
}

// firewallRules: source ranges take precedence over the allow annotation; deny rules always apply.
func firewallRules(service *v1.Service, s settings) (*godo.LBFirewall, error) {
	f := &godo.LBFirewall{Allow: s.AllowRules, Deny: s.DenyRules}
	if len(service.Spec.LoadBalancerSourceRanges) == 0 {
		return f, nil
	}
	f.Allow = nil
	allowed, err := sources.Parse(sources.Field, service.Spec.LoadBalancerSourceRanges)
	for _, network := range allowed.Texts() {
		f.Allow = append(f.Allow, "cidr:"+network)
	}
	return f, err
}

// step is one API call.
type step struct {
	kind     stepKind
	request  *godo.LoadBalancerRequest
	droplets []int
	// reasons names the fields that differ.
	reasons []string
}

type stepKind string

const (
	create         stepKind = "create"
	replace        stepKind = "replace"
	addDroplets    stepKind = "add droplets"
	removeDroplets stepKind = "remove droplets"
)

// creation returns the call that creates a load balancer, under the default name.
func creation(want *godo.LoadBalancerRequest, service *v1.Service) step {
	request := *want
	request.Name = defaultName(service)
	return step{kind: create, request: &request}
}

// plan returns the calls from the present to the desired load balancer: only droplets if nothing else differs, otherwise a replacement. A
// change of size comes last, in its own call, because the API allows only one an hour.
func plan(have *godo.LoadBalancer, want *godo.LoadBalancerRequest) []step {
	request := keepFixed(have, want)
	reasons := differences(have, request)
	droplets := planDroplets(have, want.DropletIDs)
	if len(reasons) == 0 && len(droplets) < 2 {
		return droplets
	}
	if len(droplets) > 0 {
		reasons = append(reasons, fieldDroplets)
	}
	return splitResize(have, request, reasons)
}

// dropletsAfter returns the droplets of a load balancer after a step that adds or removes some.
func (s step) dropletsAfter(lb *godo.LoadBalancer) []int {
	if s.kind == removeDroplets {
		return subtract(lb.DropletIDs, s.droplets)
	}
	return slices.Concat(lb.DropletIDs, s.droplets)
}

// compare returns the changed parts of a load balancer, before and after the step.
func (s step) compare(lb *godo.LoadBalancer) (before, after any) {
	request := s.request
	if request == nil {
		request = &godo.LoadBalancerRequest{DropletIDs: s.dropletsAfter(lb)}
	}
	return services.Part(lb.AsRequest(), s.reasons...), services.Part(request, s.reasons...)
}

// splitResize returns the replacement, in two calls if it changes the size and other fields.
func splitResize(have *godo.LoadBalancer, request *godo.LoadBalancerRequest, reasons []string) []step {
	isSize := func(field string) bool { return field == fieldSize || field == fieldSizeUnit }
	other := slices.DeleteFunc(slices.Clone(reasons), isSize)
	if len(other) == 0 || len(other) == len(reasons) {
		return []step{{kind: replace, request: request, reasons: reasons}}
	}
	first := *request
	first.SizeSlug, first.SizeUnit = currentSize(have)
	return []step{
		{kind: replace, request: &first, reasons: other},
		{kind: replace, request: request, reasons: slices.DeleteFunc(slices.Clone(reasons), func(field string) bool { return !isSize(field) })},
	}
}

// currentSize returns the size that leaves a load balancer unchanged.
func currentSize(lb *godo.LoadBalancer) (slug string, count uint32) {
	if lb.SizeUnit != 0 {
		return "", lb.SizeUnit
	}
	return lb.SizeSlug, 0
}

// planDroplets is plan for a change of nodes alone. Additions come first, so that there are always backends.
func planDroplets(have *godo.LoadBalancer, want []int) []step {
	if len(want) > 0 && len(have.DropletIDs) == len(want) && &have.DropletIDs[0] == &want[0] {
		return nil // the same list in memory
	}
	var steps []step
	if add := subtract(want, have.DropletIDs); len(add) > 0 {
		steps = append(steps, step{kind: addDroplets, droplets: add, reasons: []string{fieldDroplets}})
	}
	if remove := subtract(have.DropletIDs, want); len(remove) > 0 {
		steps = append(steps, step{kind: removeDroplets, droplets: remove, reasons: []string{fieldDroplets}})
	}
	return steps
}

// keepFixed adapts the request to an existing load balancer. Fixed fields keep their values, as do fields that others set and a
// replacement would reset.
func keepFixed(have *godo.LoadBalancer, want *godo.LoadBalancerRequest) *godo.LoadBalancerRequest {
	r := *want
	r.IP = ""
	r.Type, r.Network = cmp.Or(have.Type, r.Type), cmp.Or(have.Network, r.Network)
	r.NetworkStack = cmp.Or(have.NetworkStack, r.NetworkStack)
	r.VPCUUID, r.ProjectID, r.TLSCipherPolicy = cmp.Or(have.VPCUUID, r.VPCUUID), have.ProjectID, have.TLSCipherPolicy
	r.VPCSubnetUUID = cmp.Or(r.VPCSubnetUUID, have.VPCSubnetUUID)
	if have.Region != nil {
		r.Region = cmp.Or(have.Region.Slug, r.Region)
	}
	if r.SizeSlug == "" && r.SizeUnit == 0 {
		// Without a requested size the present one stays.
		r.SizeSlug, r.SizeUnit = currentSize(have)
	}
	owned := slices.ContainsFunc(r.Tags, ownership.IsServiceMark)
	for _, tag := range have.Tags {
		// Marks of a deleted former owner are dropped.
		if !slices.Contains(r.Tags, tag) && (!owned || !ownership.IsServiceMark(tag)) {
			r.Tags = append(slices.Clone(r.Tags), tag)
		}
	}
	return &r
}

// differences names the differing fields except droplets. Fields that the API ignores or fixes at creation are left out, because no write
// could correct them.
func differences(lb *godo.LoadBalancer, r *godo.LoadBalancerRequest) []string {
	var fields []string
	differ := func(field string, different bool) {
		if different {
			fields = append(fields, field)
		}
	}
	differ("name", lb.Name != r.Name)
	differ(fieldSize, r.SizeSlug != "" && r.SizeSlug != lb.SizeSlug)
	differ(fieldSizeUnit, r.SizeUnit != 0 && r.SizeUnit != lb.SizeUnit)
	differ("subnet_uuid", r.VPCSubnetUUID != lb.VPCSubnetUUID)
	differ("forwarding_rules", !services.SameSet(lb.ForwardingRules, r.ForwardingRules))
	differ("health_check", !sameHealthCheck(lb.HealthCheck, r.HealthCheck))
	differ("sticky_sessions", !sameSticky(lb.StickySessions, r.StickySessions))
	differ("redirect_http_to_https", lb.RedirectHttpToHttps != r.RedirectHttpToHttps)
	differ("enable_proxy_protocol", lb.EnableProxyProtocol != r.EnableProxyProtocol)
	differ("enable_backend_keepalive", lb.EnableBackendKeepalive != r.EnableBackendKeepalive)
	differ("disable_lets_encrypt_dns_records", ptr.Deref(lb.DisableLetsEncryptDNSRecords, false) != ptr.Deref(r.DisableLetsEncryptDNSRecords, false))
	differ("http_idle_timeout_seconds", ptr.Deref(lb.HTTPIdleTimeoutSeconds, defaultIdleTimeout) != ptr.Deref(r.HTTPIdleTimeoutSeconds, defaultIdleTimeout))
	differ("firewall", !sameFirewall(lb.Firewall, r.Firewall))
	return fields
}

func sameHealthCheck(a, b *godo.HealthCheck) bool {
	if a == nil || b == nil {
		return a == b
	}
	if b.ProxyProtocol != nil && ptr.Deref(a.ProxyProtocol, false) != *b.ProxyProtocol {
		return false
	}
	x, y := *a, *b
	x.ProxyProtocol, y.ProxyProtocol = nil, nil
	if y.Path == "" {
		// The API fills in a path that a TCP check does not use.
		x.Path = ""
	}
	return x == y
}

func sameSticky(a, b *godo.StickySessions) bool {
	none := godo.StickySessions{Type: stickyNone}
	x, y := ptr.Deref(a, none), ptr.Deref(b, none)
	return x.Type == y.Type && (x.Type != stickyCookies || x == y)
}

func sameFirewall(a, b *godo.LBFirewall) bool {
	x, y := ptr.Deref(a, godo.LBFirewall{}), ptr.Deref(b, godo.LBFirewall{})
	return services.SameSet(x.Allow, y.Allow) && services.SameSet(x.Deny, y.Deny)
}

// subtract returns the items that are not in other, in their order.
func subtract(items, other []int) (rest []int) {
	other = sortIDs(other)
	for _, id := range items {
		if _, known := slices.BinarySearch(other, id); !known {
			rest = append(rest, id)
		}
	}
	return rest
}

// sortIDs returns ids itself if it is already sorted.
func sortIDs(ids []int) []int {
	if slices.IsSorted(ids) {
		return ids
	}
	return slices.Sorted(slices.Values(ids))
}

func status(lb *godo.LoadBalancer, s settings) *v1.LoadBalancerStatus {
	if s.Hostname != "" {
		return &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{Hostname: strings.ToLower(s.Hostname)}}}
	}
	st := &v1.LoadBalancerStatus{}
	for _, ip := range []string{lb.IP, lb.IPv6} {
		if ip != "" {
			st.Ingress = append(st.Ingress, v1.LoadBalancerIngress{IP: ip})
		}
	}
	return st
}
