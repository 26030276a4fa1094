package gcesim

import (
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/gce/gcelimits"
)

func completeForwardingRule(s *Sim, at location, d document) *refusal {
	target, backend := text(d, "target"), text(d, "backendService")
	if (target == "") == (backend == "") {
		return invalid("Invalid value for field 'resource.target': '%s'. Exactly one of target and backendService is needed.", target)
	}
	protocol := text(d, "IPProtocol")
	if protocol == "" {
		protocol = "TCP"
	}
	if !slices.Contains([]string{"TCP", "UDP", "ESP", "AH", "SCTP", "ICMP", "L3_DEFAULT"}, protocol) {
		return invalid("Invalid value for field 'resource.IPProtocol': '%s'.", protocol)
	}
	d["IPProtocol"] = protocol
	if err := checkPorts(d, target != ""); err != nil {
		return err
	}
	if err := checkRuleTexts(d); err != nil {
		return err
	}
	d["networkTier"] = textOr(d["networkTier"], "PREMIUM")
	d["loadBalancingScheme"] = textOr(d["loadBalancingScheme"], "EXTERNAL")
	d["description"] = textOr(d["description"], "")
	if d["loadBalancingScheme"] == "INTERNAL" {
		delete(d, "networkTier")
		d["networkTier"] = "PREMIUM"
	}
	if of := s.objects[at.resource(backend)]; backend != "" && text(of, "protocol") != protocol && text(of, "protocol") != "UNSPECIFIED" {
		return invalid("Invalid value for field 'resource.IPProtocol': '%s'. The protocol of the backend service is %s.", protocol, text(of, "protocol"))
	}
	for _, key := range []string{"network", "subnetwork", "target", "backendService"} {
		if v := text(d, key); v != "" {
			d[key] = linkTo(at.resource(v))
		}
	}
	if err := s.assignAddress(at, d); err != nil {
		return err
	}
	d["fingerprint"], d["labelFingerprint"] = "abcdef0123A=", "abcdef0123A="
	d["selfLinkWithId"] = linkTo(at.path())
	if d["allowGlobalAccess"] == false {
		delete(d, "allowGlobalAccess")
	}
	return nil
}

var (
	labelForm = regexp.MustCompile(`^[\p{Ll}\p{Lo}\p{N}_-]{0,63}$`)
	pathForm  = regexp.MustCompile(`^(/[!-~]*)?$`)
)

// checkRuleTexts refuses invalid texts of a forwarding rule.
func checkRuleTexts(d document) *refusal {
	for key, legal := range map[string][]string{
		"networkTier":         {"", "PREMIUM", "STANDARD", "FIXED_STANDARD", "STANDARD_OVERRIDES_FIXED_STANDARD"},
		"loadBalancingScheme": {"", "EXTERNAL", "EXTERNAL_MANAGED", "INTERNAL", "INTERNAL_MANAGED", "INTERNAL_SELF_MANAGED"},
	} {
		if !slices.Contains(legal, text(d, key)) {
			return invalid("Invalid value for field 'resource.%s': '%s'.", key, text(d, key))
		}
	}
	for _, p := range textsOf(d["ports"]) {
		if !portRange(p) {
			return invalid("Invalid value for field 'resource.ports[0]': '%s'.", p)
		}
	}
	return nil
}

// setLabels is the only call that writes labels; a creation ignores them.
func setLabels(s *Sim, _ location, d, body document) *refusal {
	if body["labelFingerprint"] != d["labelFingerprint"] {
		return &refusal{http.StatusPreconditionFailed, "conditionNotMet", "Labels fingerprint either invalid or resource labels have changed"}
	}
	labels, _ := body["labels"].(map[string]any)
	for key, value := range labels {
		if !labelForm.MatchString(key) || !labelForm.MatchString(fmt.Sprint(value)) {
			return invalid("Invalid value for field 'labels': '%s=%v'. Label value violates format constraints.", key, value)
		}
	}
	s.number++
	d["labels"], d["labelFingerprint"] = labels, fmt.Sprintf("lf%08d=", s.number)
	return nil
}

func textOr(v any, standard string) any {
	if t, ok := v.(string); ok && t != "" {
		return t
	}
	return standard
}

func checkPorts(d document, pool bool) *refusal {
	portRange, ports := text(d, "portRange"), textsOf(d["ports"])
	switch {
	case pool && (len(ports) > 0 || d["allPorts"] == true):
		return invalid("Invalid value for field 'resource.ports'. Ports are for rules with a backend service.")
	case !pool && portRange != "":
		return invalid("Invalid value for field 'resource.portRange': '%s'. A port range is for rules with a target.", portRange)
	case len(ports) > 0 && d["allPorts"] == true:
		return invalid("Invalid value for field 'resource.allPorts'. Ports and allPorts exclude each other.")
	}
	if portRange == "" {
		return nil
	}
	from, to, both := strings.Cut(portRange, "-")
	if !both {
		to = from
	}
	a, errA := strconv.Atoi(from)
	b, errB := strconv.Atoi(to)
	if errA != nil || errB != nil || a < 1 || b > 65535 || a > b {
		return invalid("Invalid value for field 'resource.portRange': '%s'.", portRange)
	}
	d["portRange"] = fmt.Sprintf("%d-%d", a, b)
	return nil
}

// assignAddress gives a forwarding rule the requested address, or a new one.
func (s *Sim) assignAddress(at location, d document) *refusal {
	internal := d["loadBalancingScheme"] == "INTERNAL"
	ip := text(d, "IPAddress")
	if strings.Contains(ip, "/") {
		reserved, ok := s.objects[at.resource(ip)]
		if !ok {
			return notFound(at.resource(ip))
		}
		ip = text(reserved, "address")
	}
	if ip == "" {
		d["IPAddress"] = s.newAddress(internal, text(d, "subnetwork"))
		return nil
	}
	if _, err := netip.ParseAddr(ip); err != nil {
		return invalid("Invalid value for field 'resource.IPAddress': '%s'.", ip)
	}
	reserved := s.reservedAddress(at, ip)
	switch {
	case !internal && reserved == nil:
		return invalid("Invalid value for field 'resource.IPAddress': '%s'. The specified external IP address '%s' was not found in region '%s'.", ip, ip, at.region())
	case !internal && text(reserved, "networkTier") != d["networkTier"]:
		return invalid("Invalid value for field 'resource.IPAddress': '%s'. The network tier of the address is %s.", ip, text(reserved, "networkTier"))
	case slices.ContainsFunc(s.usersOf(ip), func(u any) bool { return strings.Contains(fmt.Sprint(u), "/instances/") }):
		return invalid("Invalid value for field 'resource.IPAddress': '%s'. Specified IP address is in-use and would result in a conflict.", ip)
	case internal:
		subnet := s.objects[at.resource(text(d, "subnetwork"))]
		within, _ := netip.ParsePrefix(text(subnet, "ipCidrRange"))
		if !within.Contains(netip.MustParseAddr(ip)) {
			return invalid("Invalid value for field 'resource.IPAddress': '%s'. Requested IP is not within the range of subnetwork '%s'.", ip, text(d, "subnetwork"))
		}
	}
	return s.checkCollision(at, d, ip)
}

// checkCollision refuses an address whose ports another forwarding rule has.
func (s *Sim) checkCollision(at location, d document, ip string) *refusal {
	for p, o := range s.objects {
		other := parsePath(p)
		if other.collection == "forwardingRules" && other.name != at.name && text(o, "IPAddress") == ip && o["IPProtocol"] == d["IPProtocol"] && overlap(o, d) {
			return invalid("Invalid value for field 'resource.IPAddress': '%s'. Specified IP address is in-use and would result in a conflict.", ip)
		}
	}
	return nil
}

func overlap(a, b document) bool {
	if text(a, "portRange") == "" || text(b, "portRange") == "" {
		return true
	}
	span := func(d document) (from, to int) {
		_, _ = fmt.Sscanf(text(d, "portRange"), "%d-%d", &from, &to) // its form was checked
		return from, to
	}
	fromA, toA := span(a)
	fromB, toB := span(b)
	return fromA <= toB && fromB <= toA
}

func (s *Sim) reservedAddress(at location, ip string) document {
	for p, o := range s.objects {
		if other := parsePath(p); other.collection == "addresses" && other.project == at.project && text(o, "address") == ip {
			return o
		}
	}
	return nil
}

// newAddress returns an unused address.
func (s *Sim) newAddress(internal bool, subnet string) string {
	for {
		ip := s.nextAddress(internal, subnet)
		taken := len(s.usersOf(ip)) > 0
		for p, o := range s.objects {
			taken = taken || (parsePath(p).collection == "addresses" && text(o, "address") == ip)
		}
		if !taken {
			return ip
		}
	}
}

func (s *Sim) nextAddress(internal bool, subnet string) string {
	s.addresses++
	if internal {
		if within, err := netip.ParsePrefix(text(s.objects[location{}.resource(subnet)], "ipCidrRange")); err == nil {
			ip := within.Masked().Addr()
			for range s.addresses%200 + 5 {
				ip = ip.Next()
			}
			return ip.String()
		}
		return fmt.Sprintf("10.128.15.%d", s.addresses%250+1)
	}
	return fmt.Sprintf("203.0.%d.%d", 113+s.addresses/250, s.addresses%250+1)
}

func completeAddress(s *Sim, at location, d document) *refusal {
	if kind := text(d, "addressType"); !slices.Contains([]string{"", "EXTERNAL", "INTERNAL"}, kind) {
		return invalid("Invalid value for field 'resource.addressType': '%s'.", kind)
	}
	d["addressType"] = textOr(d["addressType"], "EXTERNAL")
	internal := d["addressType"] == "INTERNAL"
	d["description"] = textOr(d["description"], "")
	if v := text(d, "subnetwork"); v != "" {
		d["subnetwork"] = linkTo(at.resource(v))
	}
	if internal {
		d["purpose"] = textOr(d["purpose"], "GCE_ENDPOINT")
	}
	d["networkTier"] = textOr(d["networkTier"], "PREMIUM")
	ip := text(d, "address")
	if _, err := netip.ParseAddr(ip); ip != "" && err != nil {
		return invalid("Invalid value for field 'resource.address': '%s'. Must be an IP address.", ip)
	}
	if ip == "" {
		d["address"] = s.newAddress(internal, text(d, "subnetwork"))
	} else if err := s.checkReservable(at, d, ip); err != nil {
		return err
	}
	d["status"], d["labelFingerprint"] = "RESERVED", "abcdef0123A="
	return nil
}

// checkReservable refuses an unavailable address.
func (s *Sim) checkReservable(at location, d document, ip string) *refusal {
	internal := d["addressType"] == "INTERNAL"
	if s.reservedAddress(at, ip) != nil {
		if internal {
			return &refusal{http.StatusConflict, "alreadyExists", "The internal address '" + ip + "' is already reserved"}
		}
		return invalid("Invalid value for field 'resource.address': '%s'. Specified IP address is already reserved.", ip)
	}
	subnet := s.objects[at.resource(text(d, "subnetwork"))]
	if within, err := netip.ParsePrefix(text(subnet, "ipCidrRange")); internal && err == nil && !within.Contains(netip.MustParseAddr(ip)) {
		return invalid("Invalid value for field 'resource.address': '%s'. Requested IP is not within the range of subnetwork '%s'.", ip, text(d, "subnetwork"))
	}
	rule := s.ruleWith(ip)
	if rule == nil && !internal {
		return invalid("Invalid value for field 'resource.address': '%s'. Specified IP address is not available.", ip)
	}
	if rule != nil && !internal && rule["networkTier"] != d["networkTier"] {
		return invalid("Invalid value for field 'resource.networkTier': '%v'. The address is of tier %v.", d["networkTier"], rule["networkTier"])
	}
	return nil
}

// usersOf returns links to the users of an address.
func (s *Sim) usersOf(ip string) (users []any) {
	var paths []string
	for p, o := range s.objects {
		has := parsePath(p).collection == "forwardingRules" && text(o, "IPAddress") == ip
		interfaces, _ := o["networkInterfaces"].([]any)
		for _, i := range interfaces {
			n, _ := i.(map[string]any)
			has = has || text(n, "networkIP") == ip
			configs, _ := n["accessConfigs"].([]any)
			for _, c := range configs {
				config, _ := c.(map[string]any)
				has = has || text(config, "natIP") == ip
			}
		}
		if has {
			paths = append(paths, p)
		}
	}
	slices.Sort(paths)
	for _, p := range paths {
		users = append(users, s.objects[p]["selfLink"])
	}
	return users
}

func (s *Sim) ruleWith(ip string) document {
	for p, o := range s.objects {
		if parsePath(p).collection == "forwardingRules" && text(o, "IPAddress") == ip {
			return o
		}
	}
	return nil
}

func setTarget(s *Sim, at location, d, body document) *refusal {
	target := at.resource(text(body, "target"))
	if _, ok := s.objects[target]; !ok {
		return notFound(target)
	}
	if parsePath(target).collection != "targetPools" {
		return invalid("Invalid value for field 'target': '%s'.", text(body, "target"))
	}
	d["target"] = linkTo(target)
	return nil
}

func completeTargetPool(s *Sim, at location, d document) *refusal {
	affinity := fmt.Sprint(textOr(d["sessionAffinity"], "NONE"))
	if !slices.Contains([]string{"NONE", "CLIENT_IP", "CLIENT_IP_PROTO"}, affinity) {
		return invalid("Invalid value for field 'resource.sessionAffinity': '%s'.", affinity)
	}
	d["sessionAffinity"] = affinity
	members := textsOf(d["instances"])
	delete(d, "instances")
	if err := s.addLinks(at, d, "instances", members); err != nil {
		return err
	}
	checks := textsOf(d["healthChecks"])
	if len(checks) > 1 {
		return invalid("Invalid value for field 'resource.healthChecks'. At most one health check.")
	}
	delete(d, "healthChecks")
	return s.addLinks(at, d, "healthChecks", checks)
}

// addLinks adds links to a list. Present ones do not fail the call.
func (s *Sim) addLinks(at location, d document, key string, add []string) *refusal {
	list, _ := d[key].([]any)
	list = slices.Clone(list)
	has := setOf(textsOf(list))
	for _, l := range add {
		p := at.resource(l)
		other := parsePath(p)
		if key == "instances" && other.region() != at.region() {
			return invalid("Invalid value for field 'resource.instances': '%s'. The instance is not in the region of the pool.", l)
		}
		if key == "healthChecks" && other.collection != "httpHealthChecks" {
			return invalid("Invalid value for field 'resource.healthChecks': '%s'. Target pools take legacy HTTP health checks.", l)
		}
		if _, ok := s.objects[p]; !ok {
			return notFound(p)
		}
		if link := linkTo(p); !has[link] {
			has[link], list = true, append(list, link)
		}
	}
	if len(list) > 0 {
		d[key] = list
	}
	return nil
}

// members reads the list of objects with one link each that calls on pools and groups take.
func members(body document, key, inner string) (list []string) {
	all, _ := body[key].([]any)
	for _, e := range all {
		if o, ok := e.(map[string]any); ok {
			list = append(list, text(o, inner))
		}
	}
	return list
}

func addMembers(key, inner string, most int) func(s *Sim, at location, d, body document) *refusal {
	return func(s *Sim, at location, d, body document) *refusal {
		add := members(body, key, inner)
		if len(add) == 0 || len(add) > max(most, 1) {
			return invalid("Invalid value for field '%s'. %d entries, where 1 to %d are allowed.", key, len(add), most)
		}
		if key == "healthChecks" && len(textsOf(d[key])) > 0 {
			return invalid("Invalid value for field 'healthChecks'. At most one health check.")
		}
		return s.addLinks(at, d, key, add)
	}
}

func removeMembers(key, inner string) func(s *Sim, at location, d, body document) *refusal {
	return func(_ *Sim, at location, d, body document) *refusal {
		remove := members(body, key, inner)
		if len(remove) == 0 {
			return invalid("Invalid value for field '%s'. %d entries.", key, len(remove))
		}
		paths := make([]string, len(remove))
		for i, l := range remove {
			paths[i] = at.resource(l)
		}
		list := removeLinks(d[key], paths...)
		d[key] = list
		if len(list) == 0 {
			delete(d, key)
		}
		return nil
	}
}

// checkNumbers adds the defaults of a health check, and compares them.
func checkNumbers(d document) *refusal {
	for key, standard := range map[string]float64{"checkIntervalSec": 5, "timeoutSec": 5, "healthyThreshold": 2, "unhealthyThreshold": 2} {
		n, ok := d[key].(float64)
		if !ok {
			d[key], n = standard, standard
		}
		if n < 1 || n > 300 {
			return invalid("Invalid value for field 'resource.%s': '%v'.", key, n)
		}
	}
	if d["timeoutSec"].(float64) > d["checkIntervalSec"].(float64) { //nolint:forcetypeassert // set above
		return invalid("Invalid value for field 'resource.timeoutSec'. It must be no more than checkIntervalSec.")
	}
	return nil
}

func completeHTTPCheck(_ *Sim, _ location, d document) *refusal {
	if _, ok := d["port"].(float64); !ok {
		d["port"] = 80.0
	}
	if path := text(d, "requestPath"); !pathForm.MatchString(path) {
		return invalid("Invalid value for field 'resource.requestPath': '%s'. Must be a valid path.", path)
	}
	d["requestPath"] = textOr(d["requestPath"], "/")
	d["proxyHeader"] = "NONE"                                  // undocumented, but in answers of the real API
	if port := d["port"].(float64); port < 1 || port > 65535 { //nolint:forcetypeassert // set above
		return invalid("Invalid value for field 'resource.port': '%v'.", port)
	}
	return checkNumbers(d)
}

func completeHealthCheck(_ *Sim, _ location, d document) *refusal {
	if text(d, "type") != "HTTP" {
		return invalid("Invalid value for field 'resource.type': '%s'. Only HTTP is simulated.", text(d, "type"))
	}
	check, _ := d["httpHealthCheck"].(map[string]any)
	port, _ := check["port"].(float64)
	if check == nil || port < 1 || port > 65535 {
		return invalid("Invalid value for field 'resource.httpHealthCheck.port': '%v'.", port)
	}
	if path, _ := check["requestPath"].(string); !pathForm.MatchString(path) {
		return invalid("Invalid value for field 'resource.httpHealthCheck.requestPath': '%s'. Must be a valid path.", path)
	}
	check["proxyHeader"], check["requestPath"] = textOr(check["proxyHeader"], "NONE"), textOr(check["requestPath"], "/")
	return checkNumbers(d)
}

func completeBackendService(s *Sim, at location, d document) *refusal {
	if !slices.Contains([]string{"INTERNAL", "EXTERNAL"}, text(d, "loadBalancingScheme")) {
		return invalid("Invalid value for field 'resource.loadBalancingScheme': '%s'.", text(d, "loadBalancingScheme"))
	}
	d["protocol"] = textOr(d["protocol"], "TCP")
	if p := text(d, "protocol"); !slices.Contains([]string{"TCP", "UDP", "UNSPECIFIED"}, p) {
		return invalid("Invalid value for field 'resource.protocol': '%s'.", p)
	}
	if a := text(d, "sessionAffinity"); !slices.Contains([]string{
		"", "NONE", "CLIENT_IP", "CLIENT_IP_PROTO", "CLIENT_IP_PORT_PROTO", "CLIENT_IP_NO_DESTINATION",
	}, a) {
		return invalid("Invalid value for field 'resource.sessionAffinity': '%s'.", a)
	}
	if len(textsOf(d["healthChecks"])) != 1 {
		return invalid("Invalid value for field 'resource.healthChecks'. Exactly one health check is needed.")
	}
	var checks []any
	for _, p := range links(at, d["healthChecks"]) {
		checks = append(checks, linkTo(p))
	}
	d["healthChecks"] = checks
	groups := map[string]bool{}
	list, _ := d["backends"].([]any)
	for _, b := range list {
		backend, _ := b.(map[string]any)
		p := at.resource(text(backend, "group"))
		if groups[p] {
			return invalid("Invalid value for field 'resource.backends'. The group '%s' is there twice.", p)
		}
		if parsePath(p).region() != at.region() {
			return invalid("Invalid value for field 'resource.backends': '%s'. The group is in another region.", p)
		}
		if mode := text(backend, "balancingMode"); !slices.Contains([]string{"", "CONNECTION", "RATE", "UTILIZATION"}, mode) {
			return invalid("Invalid value for field 'resource.backends[0].balancingMode': '%s'.", mode)
		}
		groups[p] = true
		backend["group"], backend["balancingMode"] = linkTo(p), textOr(backend["balancingMode"], "CONNECTION")
	}
	s.number++
	d["fingerprint"] = fmt.Sprintf("fp%08d=", s.number)
	d["sessionAffinity"], d["description"] = textOr(d["sessionAffinity"], "NONE"), textOr(d["description"], "")
	for key, standard := range map[string]any{
		"timeoutSec": 30.0, "affinityCookieTtlSec": 0.0, "connectionDraining": map[string]any{"drainingTimeoutSec": 0.0},
		"iap": map[string]any{"enabled": false},
	} {
		if d[key] == nil {
			d[key] = standard
		}
	}
	return nil
}

func backendUses(at location, d document) []string {
	used := links(at, d["healthChecks"])
	list, _ := d["backends"].([]any)
	for _, b := range list {
		if backend, ok := b.(map[string]any); ok {
			used = append(used, links(at, backend["group"])...)
		}
	}
	return used
}

func completeInstanceGroup(_ *Sim, _ location, d document) *refusal {
	d["size"], d["fingerprint"] = 0, "abcdef0123A="
	return nil
}

func addToGroup(s *Sim, at location, d, body document) *refusal {
	add := members(body, "instances", "instance")
	list, _ := d["members"].([]any)
	list = slices.Clone(list)
	if len(add) == 0 || gcelimits.GroupMembers.CheckNumber(len(list)+len(add)) != nil {
		return invalid("Invalid value for field 'instances'. A group holds 1 to 1000 instances.")
	}
	has, balanced := setOf(textsOf(list)), s.balancedElsewhere(at)
	for _, l := range add {
		p := at.resource(l)
		if parsePath(p).scope != at.scope {
			return invalid("Invalid value for field 'instances': '%s'. The instance is in another zone.", l)
		}
		if _, ok := s.objects[p]; !ok {
			return notFound(p)
		}
		link := linkTo(p)
		if has[link] {
			return &refusal{http.StatusBadRequest, "memberAlreadyExists", "Member '" + p + "' is already a member of '" + at.path() + "'."}
		}
		if balanced[link] {
			return &refusal{
				http.StatusBadRequest, "instanceInMultipleLoadBalancedIgs",
				"Validation failed for instance '" + p + "': instance may belong to at most one load-balanced instance group.",
			}
		}
		if err := adoptNetwork(d, s.objects[p], p); err != nil {
			return err
		}
		has[link], list = true, append(list, link)
	}
	d["members"], d["size"] = list, len(list)
	return nil
}

// balancedElsewhere returns the members of all other load-balanced groups.
func (s *Sim) balancedElsewhere(at location) map[string]bool {
	all := map[string]bool{}
	for q, o := range s.objects {
		if parsePath(q).collection == "instanceGroups" && q != at.path() && s.userOf(q) != "" {
			for _, m := range textsOf(o["members"]) {
				all[m] = true
			}
		}
	}
	return all
}

func setOf(list []string) map[string]bool {
	set := make(map[string]bool, len(list))
	for _, e := range list {
		set[e] = true
	}
	return set
}

// adoptNetwork gives a group the network and subnet of its first member, and refuses members of others.
func adoptNetwork(d, instance document, path string) *refusal {
	interfaces, _ := instance["networkInterfaces"].([]any)
	if len(interfaces) == 0 {
		return invalid("Invalid value for field 'instances': '%s'. The instance has no network interface.", path)
	}
	first, _ := interfaces[0].(map[string]any)
	for _, key := range []string{"network", "subnetwork"} {
		have, want := text(d, key), text(first, key)
		if have != "" && (location{}).resource(have) != (location{}).resource(want) {
			return invalid("Invalid value for field 'instances': '%s'. Instances of a group must be of one %s; this one is of '%s'.", path, key, want)
		}
		if want != "" {
			d[key] = want
		}
	}
	return nil
}

func removeFromGroup(_ *Sim, at location, d, body document) *refusal {
	has := setOf(textsOf(d["members"]))
	var remove []string
	for _, l := range members(body, "instances", "instance") {
		p := at.resource(l)
		if !has[linkTo(p)] {
			return &refusal{http.StatusBadRequest, "memberNotFound", "The instance '" + p + "' is not a member of '" + at.path() + "'."}
		}
		delete(has, linkTo(p))
		remove = append(remove, p)
	}
	list := removeLinks(d["members"], remove...)
	d["members"], d["size"] = list, len(list)
	return nil
}
