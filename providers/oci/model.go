package oci

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/anyccm/cloud-controller-manager/providers/kit/jsondoc"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/providers/oci/ocilimits"
)

// This file computes the desired state from Service, nodes and settings, without any call.

const (
	healthPath   = "/healthz"
	kubeProxy    = 10256
	healthStatus = 200
)

// balancerName returns the name that Oracle's own controller gives.
func balancerName(prefix string, service *v1.Service) string {
	if prefix != "" && !strings.HasSuffix(prefix, "-") {
		prefix += "-"
	}
	name := prefix + string(service.UID)
	return ocilimits.Title.Cut(name)
}

// desired is the desired state of a load balancer.
type desired struct {
	name      string
	listeners map[string]document
	sets      map[string]document
	// noNodes is set if no node can receive traffic. The backends stay as they are then.
	noNodes bool
	// version is the API's word for the IP versions of a network load balancer.
	version string
	shape   string
	details *shapeDetails
	groups  []string
	// certificates are the requests for the certificates in use, by name; obsolete are the names of those to delete.
	certificates map[string]document
	obsolete     []string
	// ruleSets is nil if existing ones stay as they are.
	ruleSets map[string]document
	// lists are the changes of security lists. former are the node ports that the load balancer still uses, and will leave.
	lists  []listPlan
	former []int
	group  groupPlan
	// record is the compartment to record on the Service.
	record string
	// create is the request for a load balancer that does not exist.
	create document
}

// protocol returns the listeners' protocol, in the API's words.
func (s settings) protocol() string {
	return strings.ToUpper(cmp.Or(s.Protocol, protocolTCP))
}

// listenerName has the protocol as the user wrote it, like the names that Oracle's own controller gives.
func (s settings) listenerName(p v1.ServicePort) string {
	return cmp.Or(s.Protocol, protocolTCP) + "-" + strconv.Itoa(int(p.Port))
}

func setName(p v1.ServicePort) string { return protocolTCP + "-" + strconv.Itoa(int(p.Port)) }

// version returns the API's word for the IP versions.
func (s settings) version() string {
	switch {
	case s.ipv6Only:
		return versionIPv6
	case s.ipv6:
		return versionBoth
	}
	return versionIPv4
}

// servedPort is a port of a Service with the names of its listener and its backend set. The protocol is in the API's words.
type servedPort struct {
	listener, set, protocol string
	port, node              int32
	// version is the IP version. Only network load balancers have a listener for each.
	version string
}

func (s settings) servedPorts(service *v1.Service) (all []servedPort) {
	if s.nlb {
		return s.nlbPorts(service)
	}
	for _, p := range service.Spec.Ports {
		all = append(all, servedPort{listener: s.listenerName(p), set: setName(p), protocol: s.protocol(), port: p.Port, node: p.NodePort})
	}
	return all
}

func (s settings) desiredListeners(service *v1.Service) map[string]document {
	all := map[string]document{}
	for _, p := range s.servedPorts(service) {
		l := document{"defaultBackendSetName": p.set, "port": p.port, "protocol": p.protocol}
		connection := document{}
		if s.Proxy != 0 {
			connection["backendTcpProxyProtocolVersion"] = s.Proxy
			connection["idleTimeout"] = map[bool]int{true: idleTCP, false: idleHTTP}[s.protocol() == protocolTCP]
		}
		if s.Idle != 0 {
			connection["idleTimeout"] = s.Idle
		}
		if len(connection) > 0 {
			l["connectionConfiguration"] = connection
		}
		if s.ruleSets != nil {
			l["ruleSetNames"] = sortedKeys(s.ruleSets)
		}
		if s.nlb {
			l["name"], l["ipVersion"] = p.listener, p.version
		}
		if header := strings.ToLower(s.PPv2); header == "true" || header == "false" {
			l["isPpv2Enabled"] = header == "true"
		}
		all[p.listener] = jsondoc.Clone(l)
	}
	return all
}

func (s settings) desiredSets(service *v1.Service, nodes []*v1.Node) map[string]document {
	all, targets := map[string]document{}, s.targetsOf(nodes)
	for _, p := range s.servedPorts(service) {
		set := document{"policy": cmp.Or(s.Policy, roundRobin), "backends": p.backends(targets), "healthChecker": s.healthChecker(service)}
		if s.nlb {
			set["policy"], set["isPreserveSource"], set["ipVersion"] = cmp.Or(s.Policy, fiveTuple), s.preserve, p.version
		}
		all[p.set] = jsondoc.Clone(set)
	}
	return all
}

// target is a node that receives traffic.
type target struct {
	instance, ipv4, ipv6 string
}

func (s settings) targetsOf(nodes []*v1.Node) (all []target) {
	for _, n := range s.eligible(nodes) {
		id, _ := parseProviderID(n.Spec.ProviderID) // which has one
		all = append(all, target{instance: id, ipv4: ipv4Of(n), ipv6: ipv6Of(n)})
	}
	slices.SortFunc(all, func(a, b target) int {
		return cmp.Or(strings.Compare(a.ipv4, b.ipv4), strings.Compare(a.ipv6, b.ipv6), strings.Compare(a.instance, b.instance))
	})
	return all
}

// backends returns the backends of a port. Of several nodes with one address the first counts, because the cloud refuses a second. Network
// load balancers name them by instance as well, except for IPv6, where that is impossible.
func (p servedPort) backends(targets []target) []any {
	all, seen := []any{}, map[string]bool{"": true}
	for _, t := range targets {
		ip, named := t.ipv4, p.version == versionIPv4
		if p.version == versionIPv6 {
			ip = t.ipv6
		}
		if seen[ip] || named && seen[t.instance] {
			continue
		}
		b := document{"ipAddress": ip, "port": p.node, "weight": 1}
		if named {
			b["targetId"] = t.instance
		}
		seen[ip], seen[t.instance] = true, true
		all = append(all, b)
	}
	return all
}

func haveNoBackends(sets map[string]document) bool {
	for _, set := range sets {
		if len(fieldOf[[]any](set, "backends")) > 0 {
			return false
		}
	}
	return true
}

// healthChecker returns the health check of all ports, which asks kube-proxy.
func (s settings) healthChecker(service *v1.Service) document {
	d := document{
		"protocol": protocolHTTP, "urlPath": healthPath, "port": healthPort(service), "returnCode": healthStatus,
		"retries": cmp.Or(s.Retries, usualRetries), "timeoutInMillis": cmp.Or(s.Timeout, usualTimeout), "intervalInMillis": cmp.Or(s.Interval, usualInterval),
	}
	if !s.nlb {
		d["isForcePlainText"] = s.BackSecret != ""
	}
	return d
}

// eligible returns the nodes that the selector chooses.
func (s settings) eligible(nodes []*v1.Node) (all []*v1.Node) {
	chosen, err := labels.Parse(s.Selector)
	if err != nil {
		chosen = labels.Nothing()
	}
	for _, n := range nodes {
		if _, err := parseProviderID(n.Spec.ProviderID); err == nil && chosen.Matches(labels.Set(n.Labels)) {
			all = append(all, n)
		}
	}
	return all
}

// ipv4Of returns the last internal IPv4 address, as Oracle's own controller does, or "".
func ipv4Of(n *v1.Node) (last string) {
	for _, a := range n.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil && ip.Is4() && a.Type == v1.NodeInternalIP {
			last = a.Address
		}
	}
	return last
}

// ipv6Of returns the last internal IPv6 address, or else the last external one, or "".
func ipv6Of(n *v1.Node) string {
	last := map[v1.NodeAddressType]string{}
	for _, a := range n.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil && ip.Is6() && !ip.Is4In6() {
			last[a.Type] = a.Address
		}
	}
	return cmp.Or(last[v1.NodeInternalIP], last[v1.NodeExternalIP])
}

// shapeFor returns the desired shape; lb is nil if there is none.
func (s settings) shapeFor(lb *loadBalancer) (string, *shapeDetails, error) {
	flexible := strings.EqualFold(s.Shape, shapeFlexible)
	is := lb != nil && strings.EqualFold(lb.Shape, shapeFlexible)
	switch {
	case is && s.Shape != "" && !flexible:
		return "", nil, refuseFor(annotationShape, s.Shape, "is a fixed shape, and the load balancer is flexible, which cannot be changed back; set it to flexible")
	case !flexible && !is:
		if s.Shape == "" {
			return usualShape, nil, nil
		}
		return s.Shape, nil, nil
	}
	var d shapeDetails
	if is && lb.Details != nil {
		d = *lb.Details
	}
	if s.ShapeMin != "" {
		d.Least, _ = bandwidth(s.ShapeMin) // the table has judged it
	}
	if s.ShapeMax != "" {
		d.Most, _ = bandwidth(s.ShapeMax) // the table has judged it
	}
	if d.Least == 0 || d.Most == 0 {
		return "", nil, refuseFor(annotationShape, s.Shape, "takes its bandwidths from %s and %s; set both", annotationShapeMin, annotationShapeMax)
	}
	d.Most = max(d.Most, d.Least)
	return shapeFlexible, &d, nil
}

// creation returns the request for a whole load balancer, as Oracle's own controller makes it.
func (d desired) creation(s settings, p placement, t tags) document {
	more := d.balancerCreation(p)
	if s.nlb {
		more = d.nlbCreation(s, p)
	}
	reserved := []any{}
	if p.reserved != "" {
		reserved = append(reserved, document{"id": p.reserved})
	}
	all := document{
		"compartmentId": p.compartment, "displayName": d.name, "isPrivate": s.Internal, "backendSets": d.sets, "listeners": d.listeners,
		"networkSecurityGroupIds": d.groups, "reservedIps": reserved,
	}
	maps.Copy(all, more)
	if len(t.Freeform) > 0 {
		all["freeformTags"] = t.Freeform
	}
	if len(t.Defined) > 0 {
		all["definedTags"] = t.Defined
	}
	return jsondoc.Clone(all)
}

// balancerCreation returns the fields of a creation request that network load balancers do not have.
func (d desired) balancerCreation(p placement) document {
	all := document{"shapeName": d.shape, "subnetIds": p.subnets, "certificates": d.certificates, "ipMode": versionIPv4}
	if d.details != nil {
		all["shapeDetails"] = d.details
	}
	if len(d.ruleSets) > 0 {
		all["ruleSets"] = d.ruleSets
	}
	if p.ipv6 {
		all["ipMode"] = versionIPv6
	}
	return all
}

// tags are set when a load balancer is created.
type tags struct {
	Freeform map[string]string         `json:"freeform"`
	Defined  map[string]map[string]any `json:"defined"`
}

// tagCluster is the free-form tag with the mark of the load balancer's cluster.
const tagCluster = "anyccm-cluster"

// withMark adds the mark of the cluster, if that is known.
func (t tags) withMark(mark string) tags {
	if mark == "" {
		return t
	}
	free := map[string]string{}
	maps.Copy(free, t.Freeform)
	free[tagCluster] = mark
	return tags{Freeform: free, Defined: t.Defined}
}

// ownTags returns the tags of the annotations.
func (s settings) ownTags() (t tags) {
	if s.Freeform != "" {
		_ = json.Unmarshal([]byte(s.Freeform), &t.Freeform) // the table has judged it
	}
	if s.Defined != "" {
		_ = json.Unmarshal([]byte(s.Defined), &t.Defined) // the table has judged it
	}
	return t
}

// tagsOf returns the tags of the annotations, or else all tags of the cloud config.
func (s settings) tagsOf(configured tags) tags {
	if t := s.ownTags(); len(t.Freeform)+len(t.Defined) > 0 {
		return t
	}
	return configured
}

// creationTags returns a new load balancer's tags, with the mark of the cluster if that is known and they leave room for it.
func (s settings) creationTags(configured tags, mark string) (tags, []services.Finding, error) {
	t := s.tagsOf(configured)
	if err := checkFreeform(t.Freeform); err != nil {
		return t, nil, err
	}
	if marked := t.withMark(mark); checkFreeform(marked.Freeform) == nil {
		return marked, nil, nil
	}
	return t, []services.Finding{services.Warning(eventUnmarked, "the load balancer is made without tag %s, the mark of the cluster, because "+
		"%d free-form tags are asked for and the cloud takes at most %d; with one less it would have the mark, by which orphans are found",
		tagCluster, len(t.Freeform), ocilimits.FreeformTags.Max)}, nil
}

var errNoSubnet = errors.New("a load balancer needs a subnet; set loadBalancer.subnet1, or the annotation " + annotationSubnet1)

// chooseSubnets returns the subnets of a new load balancer. A regional one from an annotation suffices.
func (s settings) chooseSubnets(first, second string, regional func(string) (bool, error)) ([]string, error) {
	chosen := []string{first}
	if second != "" {
		chosen = append(chosen, second)
	}
	if s.Subnet1 != "" {
		chosen[0] = s.Subnet1
		alone, err := regional(s.Subnet1)
		if err != nil {
			return nil, err
		}
		if alone {
			chosen = chosen[:1]
		}
	}
	if s.Subnet2 != "" {
		alone, err := regional(s.Subnet2)
		switch {
		case err != nil:
			return nil, err
		case alone:
			chosen = []string{s.Subnet2}
		default:
			chosen = append(chosen[:1], s.Subnet2)
		}
	}
	if s.Internal {
		chosen = chosen[:1]
	}
	if slices.Contains(chosen, "") {
		return nil, errNoSubnet
	}
	return chosen, nil
}

// normalizeName returns a listener's name for comparisons: without its protocol, which can be changed in place, and without anything after
// the port except the IP version.
func normalizeName(name string) string {
	name, six := strings.CutSuffix(name, twinSuffix)
	protocol, rest, _ := strings.Cut(name, "-")
	port, _, _ := strings.Cut(rest, "-")
	switch strings.ToUpper(protocol) {
	case protocolTCP, protocolHTTP, protocolGRPC:
		protocol = protocolTCP
	}
	if name = protocol + "-" + port; six {
		name += twinSuffix
	}
	return name
}

// matchListeners returns the existing name of each desired listener, and the existing listeners that are not wanted. The same name takes
// precedence over one that is the same when normalized.
func matchListeners(have, want map[string]document) (found map[string]string, extra []string) {
	found = map[string]string{}
	wanted := map[string]string{}
	for name := range want {
		wanted[normalizeName(name)] = name
	}
	for _, is := range sortedKeys(have) {
		name := wanted[normalizeName(is)]
		if _, exact := want[is]; exact {
			name = is
		}
		before, taken := found[name]
		switch {
		case want[name] == nil || (taken && is != name):
			extra = append(extra, is)
			continue
		case taken:
			extra = append(extra, before)
		}
		found[name] = is
	}
	slices.Sort(extra)
	return found, extra
}

// equalField reports whether a field has a value. Absent fields are false or empty.
func equalField(have, want any) bool {
	return have == want || have == nil && (want == false || want == "")
}

// writableCopy returns a document without the fields that the API shows and does not take.
func writableCopy(d document) document {
	d = jsondoc.Clone(d)
	delete(d, "name")
	return d
}

// withName returns the request for a new part of a load balancer.
func withName(d document, name string) document {
	d = jsondoc.Clone(d)
	d["name"] = name
	return d
}

// backendKey identifies a backend. One that was named by its instance may show no address.
func backendKey(backend any) string {
	b, _ := backend.(document)
	if fieldOf[string](b, "ipAddress") == "" {
		return fmt.Sprintf("%v:%v", b["targetId"], b["port"])
	}
	return fmt.Sprintf("%v:%v", b["ipAddress"], b["port"])
}

// mergeBackends returns the wanted backends. Existing ones keep all other settings, but get the new instance if a node was created again
// with the address of a former one.
func mergeBackends(have, want []any) (after []any, differs bool) {
	known, used := map[string]document{}, map[string]bool{}
	for _, b := range have {
		known[backendKey(b)], _ = b.(document)
	}
	after = []any{}
	for _, b := range want {
		wanted, _ := b.(document)
		key := backendKey(b)
		is, ok := known[key]
		if !ok && wanted["targetId"] != nil {
			key = fmt.Sprintf("%v:%v", wanted["targetId"], wanted["port"])
			is, ok = known[key]
		}
		if !ok {
			after, differs = append(after, b), true
			continue
		}
		used[key] = true
		is = writableCopy(is)
		if id, named := is["targetId"].(string); named && wanted["targetId"] != nil && wanted["targetId"] != id {
			is["targetId"], differs = wanted["targetId"], true
		}
		after = append(after, is)
	}
	return after, differs || len(used) != len(have)
}

// mergeSet returns a backend set with the wanted fields and all others that it has; what names the differences.
func mergeSet(have, want document, keepBackends bool) (after document, what []string) {
	after = writableCopy(have)
	present, wanted := fieldOf[[]any](have, "backends"), fieldOf[[]any](want, "backends")
	if keepBackends {
		wanted = present
	}
	backends, differs := mergeBackends(present, wanted)
	if after["backends"] = backends; differs && !keepBackends {
		what = append(what, "backends")
	}
	for _, field := range []struct{ key, name string }{{"policy", "policy"}, {"isPreserveSource", "source addresses"}} {
		if want[field.key] != nil && !equalField(have[field.key], want[field.key]) {
			after[field.key] = want[field.key]
			what = append(what, field.name)
		}
	}
	if mergeFields(after, want, "healthChecker") {
		what = append(what, "health check")
	}
	return after, what
}

// mergeFields sets the wanted fields of a part of a document.
func mergeFields(after, want document, part string) (differs bool) {
	now := fieldOf[document](after, part)
	for key, v := range fieldOf[document](want, part) {
		if now == nil {
			now = document{}
			after[part] = now
		}
		if !equalField(now[key], v) {
			now[key], differs = v, true
		}
	}
	return differs
}

// mergeListener returns a listener with the wanted fields and all others that it has. The case of protocols does not count. Without the
// annotation nodes get no header of the PROXY protocol, version 2.
func mergeListener(have, want document) (after document, differs bool) {
	after = writableCopy(have)
	for _, key := range []string{"defaultBackendSetName", "port", "protocol"} {
		if !equalField(have[key], want[key]) && (key != "protocol" || !strings.EqualFold(fieldOf[string](have, key), fieldOf[string](want, key))) {
			after[key], differs = want[key], true
		}
	}
	if header := fieldOf[bool](want, "isPpv2Enabled"); !equalField(have["isPpv2Enabled"], header) {
		after["isPpv2Enabled"], differs = header, true
	}
	differs = mergeTLS(after, want) || differs
	if names, given := want["ruleSetNames"]; given && !sameTexts(have["ruleSetNames"], names) {
		after["ruleSetNames"], differs = names, true
	}
	return after, mergeFields(after, want, "connectionConfiguration") || differs
}

// sameItems reports whether a rule set has the wanted rules and no others. The cloud may have completed them.
func sameItems(have, want []any) bool {
	if len(have) != len(want) {
		return false
	}
	left := slices.Clone(have)
	for _, w := range want {
		at := slices.IndexFunc(left, func(h any) bool { return containsAll(h, w) })
		if at < 0 {
			return false
		}
		left = slices.Delete(left, at, at+1)
	}
	return true
}

// containsAll reports whether a document has all fields of another one.
func containsAll(have, want any) bool {
	switch w := want.(type) {
	case document:
		h, ok := have.(document)
		for key, v := range w {
			ok = ok && containsAll(h[key], v)
		}
		return ok
	case []any:
		h, _ := have.([]any)
		return sameItems(h, w)
	}
	return have == want
}

// sameAs reports whether two reads show the same load balancer.
func (lb *loadBalancer) sameAs(other *loadBalancer) bool {
	text := func(lb loadBalancer) string {
		lb.Groups = append([]string(nil), lb.Groups...) // none may be shown as an empty list
		lb.Addresses = nil                              // which no change depends on
		return canonical(&lb)
	}
	return text(*lb) == text(*other)
}

// canonical returns a document as text that does not depend on the order of lists.
func canonical(v any) string {
	text, _ := json.Marshal(sortLists(jsondoc.CloneValue(v)))
	return string(text)
}

// sortLists sorts the lists of a document, because the cloud promises no order.
func sortLists(v any) any {
	switch v := v.(type) {
	case document:
		for key, one := range v {
			v[key] = sortLists(one)
		}
	case []any:
		for n, one := range v {
			v[n] = sortLists(one)
		}
		slices.SortFunc(v, func(a, b any) int {
			left, _ := json.Marshal(a)
			right, _ := json.Marshal(b)
			return strings.Compare(string(left), string(right))
		})
	}
	return v
}
