package oci

import (
	"bytes"
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

// This file computes and calls nobody: Service, nodes and settings make what is desired.

const (
	healthPath = "/healthz"
	kubeProxy  = 10256
	okay       = 200
)

// ownName is the name that Oracle's own controller gives.
func ownName(prefix string, service *v1.Service) string {
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
	// noNodes is set where no node can receive traffic: the backends stay as they are.
	noNodes bool
	// version is that of IP, of a network load balancer.
	version string
	shape   string
	details *shapeDetails
	groups  []string
	// certificates are the requests for those that are used, by name, and secrets the Secrets that they come from.
	certificates map[string]document
	secrets      []string
	// ruleSets are nil where they are left alone.
	ruleSets map[string]document
	// lists are the security lists to be changed; former are the ports of nodes that it serves by and is to leave.
	lists  []listPlan
	former []int
	group  groupPlan
	// record is the compartment that the Service's record is to name.
	record string
	// create is the request that creates a load balancer.
	create document
}

// protocol is that of the listeners, in the words of the API.
func (s settings) protocol() string {
	return strings.ToUpper(cmp.Or(s.Protocol, protocolTCP))
}

// listenerName is the name of a port's listener: it has the annotation's protocol as the user wrote it.
func (s settings) listenerName(p v1.ServicePort) string {
	return cmp.Or(s.Protocol, protocolTCP) + "-" + strconv.Itoa(int(p.Port))
}

func setName(p v1.ServicePort) string { return protocolTCP + "-" + strconv.Itoa(int(p.Port)) }

// version is the word for the versions of IP that there are.
func (s settings) version() string {
	switch {
	case s.sixAlone:
		return versionIPv6
	case s.six:
		return versionBoth
	}
	return versionIPv4
}

// servedPort is a port of a Service with its listener and its backend set. The protocol is in the words of the API.
type servedPort struct {
	listener, set, protocol string
	port, node              int32
	// version is that of IP; network load balancers alone have a listener for each.
	version string
}

// servedPorts are the ports of a Service that have a listener.
func (s settings) servedPorts(service *v1.Service) (all []servedPort) {
	if s.network {
		return s.networkPorts(service)
	}
	for _, p := range service.Spec.Ports {
		all = append(all, servedPort{listener: s.listenerName(p), set: setName(p), protocol: s.protocol(), port: p.Port, node: p.NodePort})
	}
	return all
}

// desiredListeners are the listeners by name.
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
		if s.network {
			l["name"], l["ipVersion"] = p.listener, p.version
		}
		if header := strings.ToLower(s.PPv2); header == "true" || header == "false" {
			l["isPpv2Enabled"] = header == "true"
		}
		all[p.listener] = jsondoc.Clone(l)
	}
	return all
}

// desiredSets are the backend sets by name.
func (s settings) desiredSets(service *v1.Service, nodes []*v1.Node) map[string]document {
	all, targets := map[string]document{}, s.targetsOf(nodes)
	for _, p := range s.servedPorts(service) {
		set := document{"policy": cmp.Or(s.Policy, roundRobin), "backends": p.backends(targets), "healthChecker": s.checker(service)}
		if s.network {
			set["policy"], set["isPreserveSource"], set["ipVersion"] = cmp.Or(s.Policy, fiveTuple), s.preserve, p.version
		}
		all[p.set] = jsondoc.Clone(set)
	}
	return all
}

// target is a node that receives traffic.
type target struct {
	instance, four, six string
}

// targetsOf are the nodes that receive traffic.
func (s settings) targetsOf(nodes []*v1.Node) (all []target) {
	for _, n := range s.eligible(nodes) {
		id, _ := parseProviderID(n.Spec.ProviderID) // which has one
		all = append(all, target{instance: id, four: addressOf(n), six: sixOf(n)})
	}
	slices.SortFunc(all, func(a, b target) int {
		return cmp.Or(strings.Compare(a.four, b.four), strings.Compare(a.six, b.six), strings.Compare(a.instance, b.instance))
	})
	return all
}

// backends are those of a port. Of several nodes with one address the first counts, because the cloud refuses a second. Network load
// balancers name them by their instances as well, but for IPv6, where that is not possible.
func (p servedPort) backends(targets []target) []any {
	all, seen := []any{}, map[string]bool{"": true}
	for _, t := range targets {
		ip, named := t.four, p.version == versionIPv4
		if p.version == versionIPv6 {
			ip = t.six
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

// reachNobody reports whether no backend set has a backend.
func reachNobody(sets map[string]document) bool {
	for _, set := range sets {
		if len(listOf(set["backends"])) > 0 {
			return false
		}
	}
	return true
}

// checker is the health check of all ports: it asks kube-proxy.
func (s settings) checker(service *v1.Service) document {
	d := document{
		"protocol": protocolHTTP, "urlPath": healthPath, "port": healthPort(service), "returnCode": okay, "retries": cmp.Or(s.Retries, usualRetries),
		"timeoutInMillis": cmp.Or(s.Timeout, usualTimeout), "intervalInMillis": cmp.Or(s.Interval, usualInterval),
	}
	if !s.network {
		d["isForcePlainText"] = s.BackSecret != ""
	}
	return d
}

// eligible are the nodes that the selector chooses.
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

// addressOf is the last internal address of IPv4, as Oracle's own controller has it; "" is none.
func addressOf(n *v1.Node) (last string) {
	for _, a := range n.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil && ip.Is4() && a.Type == v1.NodeInternalIP {
			last = a.Address
		}
	}
	return last
}

// sixOf is the last internal address of IPv6, or else the last external one; "" is none.
func sixOf(n *v1.Node) string {
	last := map[v1.NodeAddressType]string{}
	for _, a := range n.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil && ip.Is6() && !ip.Is4In6() {
			last[a.Type] = a.Address
		}
	}
	return cmp.Or(last[v1.NodeInternalIP], last[v1.NodeExternalIP])
}

// shapeFor is the shape that a load balancer is to have; lb is nil where there is none.
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

// creation is the request for the whole load balancer, as Oracle's own controller makes it.
func (d desired) creation(s settings, p placement, t tags) document {
	more := d.balancerCreation(p)
	if s.network {
		more = d.networkCreation(s, p)
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

// balancerCreation returns the further fields of the request that creates a load balancer.
func (d desired) balancerCreation(p placement) document {
	all := document{"shapeName": d.shape, "subnetIds": p.subnets, "certificates": d.certificates, "ipMode": versionIPv4}
	if d.details != nil {
		all["shapeDetails"] = d.details
	}
	if len(d.ruleSets) > 0 {
		all["ruleSets"] = d.ruleSets
	}
	if p.six {
		all["ipMode"] = versionIPv6
	}
	return all
}

// tags are those that a load balancer is made with.
type tags struct {
	Freeform map[string]string         `json:"freeform"`
	Defined  map[string]map[string]any `json:"defined"`
}

// parseTags reads the tags of the cloud config.
func parseTags(text string) (t tags, err error) {
	if text != "" {
		err = json.Unmarshal([]byte(text), &t)
	}
	return t, err
}

// tagCluster is the free-form tag that says of which cluster a load balancer is.
const tagCluster = "anyccm-cluster"

// withMark are the tags with the mark of the cluster, if that is known.
func (t tags) withMark(mark string) tags {
	if mark == "" {
		return t
	}
	free := map[string]string{}
	maps.Copy(free, t.Freeform)
	free[tagCluster] = mark
	return tags{Freeform: free, Defined: t.Defined}
}

// ownTags are those of the annotations.
func (s settings) ownTags() (t tags) {
	if s.Freeform != "" {
		_ = json.Unmarshal([]byte(s.Freeform), &t.Freeform) // the table has judged it
	}
	if s.Defined != "" {
		_ = json.Unmarshal([]byte(s.Defined), &t.Defined) // the table has judged it
	}
	return t
}

// tagsOf are those of the annotations, or else all of those of the cloud config.
func (s settings) tagsOf(configured tags) tags {
	if t := s.ownTags(); len(t.Freeform)+len(t.Defined) > 0 {
		return t
	}
	return configured
}

// creationTags are those of a new load balancer, with the mark of the cluster, if that is known and they leave room for it.
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

// chooseSubnets are the subnets of a new load balancer. One of an annotation that is regional is enough by itself.
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

// normalized is a listener's name by which it is found again: its protocol can be changed in place, and what follows the port, but for
// the version of IP, does not count.
func normalized(name string) string {
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

// matchListeners finds the listener of each that there should be, by their names, and those that belong to none. A name that is the same
// counts before one that is the same when normalized.
func matchListeners(have, want map[string]document) (found map[string]string, extra []string) {
	found = map[string]string{}
	wanted := map[string]string{}
	for name := range want {
		wanted[normalized(name)] = name
	}
	for _, is := range sortedKeys(have) {
		name := wanted[normalized(is)]
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

// equalField reports whether a field has a value; one that is absent has none.
func equalField(have, want any) bool {
	switch w := want.(type) {
	case bool:
		h, _ := have.(bool)
		return h == w
	case string:
		h, _ := have.(string)
		return h == w
	}
	return have == want
}

func listOf(v any) []any {
	l, _ := v.([]any)
	return l
}

// withoutShown is a document as it may be written: what the API shows besides is left out.
func withoutShown(d document) document {
	d = jsondoc.Clone(d)
	delete(d, "name")
	return d
}

// keyOf identifies a backend: one that was named by its instance may show no address.
func keyOf(backend any) string {
	b, _ := backend.(document)
	if ip, _ := b["ipAddress"].(string); ip == "" {
		return fmt.Sprintf("%v:%v", b["targetId"], b["port"])
	}
	return fmt.Sprintf("%v:%v", b["ipAddress"], b["port"])
}

// mergeBackends are the backends that there should be. Those that are there already keep all that somebody has set about them, but
// for the instance, which is another one where a node was made again with the address of a former one.
func mergeBackends(have, want []any) (after []any, differs bool) {
	known, used := map[string]document{}, map[string]bool{}
	for _, b := range have {
		if d, ok := b.(document); ok {
			known[keyOf(b)] = d
		}
	}
	after = []any{}
	for _, b := range want {
		wanted, _ := b.(document)
		key := keyOf(b)
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
		is = withoutShown(is)
		if id, named := is["targetId"].(string); named && wanted["targetId"] != nil && wanted["targetId"] != id {
			is["targetId"], differs = wanted["targetId"], true
		}
		after = append(after, is)
	}
	return after, differs || len(used) != len(have)
}

// mergeSet is a backend set as it should be, with all that is in it besides; what says how it differs.
func mergeSet(have, want document, keepBackends bool) (after document, what []string) {
	after = withoutShown(have)
	wanted := listOf(want["backends"])
	if keepBackends {
		wanted = listOf(have["backends"])
	}
	backends, differs := mergeBackends(listOf(have["backends"]), wanted)
	if after["backends"] = backends; differs && !keepBackends {
		what = append(what, "backends")
	}
	for _, field := range []struct{ key, name string }{{"policy", "policy"}, {"isPreserveSource", "source addresses"}} {
		if want[field.key] != nil && !equalField(have[field.key], want[field.key]) {
			after[field.key] = want[field.key]
			what = append(what, field.name)
		}
	}
	checker, _ := want["healthChecker"].(document)
	now, _ := after["healthChecker"].(document)
	if now == nil {
		now = document{}
		after["healthChecker"] = now
	}
	differs = false
	for _, key := range sortedKeys(checker) {
		if !equalField(now[key], checker[key]) {
			now[key], differs = checker[key], true
		}
	}
	if differs {
		what = append(what, "health check")
	}
	return after, what
}

// mergeSetTLS is mergeSet with how TLS is spoken.
func mergeSetTLS(have, want document, keepBackends bool) (after document, what []string) {
	after, what = mergeSet(have, want, keepBackends)
	if mergeTLS(after, want) {
		what = append(what, "TLS")
	}
	return after, what
}

// mergeListener is a listener as it should be, with all that is in it besides. The case of protocols does not count. Without the annotation
// the nodes get no header of the PROXY protocol, version 2.
func mergeListener(have, want document) (after document, differs bool) {
	after = withoutShown(have)
	for _, key := range []string{"defaultBackendSetName", "port", "protocol"} {
		text, _ := have[key].(string)
		wanted, _ := want[key].(string)
		if !equalField(have[key], want[key]) && (key != "protocol" || !strings.EqualFold(text, wanted)) {
			after[key], differs = want[key], true
		}
	}
	if header, _ := want["isPpv2Enabled"].(bool); !equalField(have["isPpv2Enabled"], header) {
		after["isPpv2Enabled"], differs = header, true
	}
	differs = mergeTLS(after, want) || differs
	if names, given := want["ruleSetNames"]; given && !sameTexts(listOf(have["ruleSetNames"]), listOf(names)) {
		after["ruleSetNames"], differs = names, true
	}
	connection, _ := want["connectionConfiguration"].(document)
	if len(connection) == 0 {
		return after, differs
	}
	now, _ := after["connectionConfiguration"].(document)
	if now == nil {
		now = document{}
		after["connectionConfiguration"] = now
	}
	for key, v := range connection {
		if !equalField(now[key], v) {
			now[key], differs = v, true
		}
	}
	return after, differs
}

// sameItems reports whether rules of a rule set are there: each as it is asked for, with what the cloud fills in, and no others.
func sameItems(have, want []any) bool {
	if len(have) != len(want) {
		return false
	}
	left := slices.Clone(have)
	for _, w := range want {
		at := slices.IndexFunc(left, func(h any) bool { return within(h, w) })
		if at < 0 {
			return false
		}
		left = slices.Delete(left, at, at+1)
	}
	return true
}

// within reports whether a document has all that another one has.
func within(have, want any) bool {
	switch w := want.(type) {
	case document:
		h, ok := have.(document)
		for key, v := range w {
			ok = ok && within(h[key], v)
		}
		return ok
	case []any:
		h, _ := have.([]any)
		return sameItems(h, w)
	}
	return have == want
}

// sameAs reports whether a load balancer is as another look showed it.
func (lb *loadBalancer) sameAs(other *loadBalancer) bool {
	text := func(lb *loadBalancer) string {
		d := *lb
		d.etag = ""
		d.Groups = slices.Sorted(slices.Values(lb.Groups))
		d.Addresses = nil // which no change depends on
		data, _ := json.Marshal(inOrder(jsondoc.CloneValue(&d)))
		return string(data)
	}
	return text(lb) == text(other)
}

// sameDocument compares documents but for the order of lists.
func sameDocument(a, b document) bool {
	left, _ := json.Marshal(inOrder(jsondoc.Clone(a)))
	right, _ := json.Marshal(inOrder(jsondoc.Clone(b)))
	return bytes.Equal(left, right)
}

// inOrder is a document whose lists are in an order of their own: the cloud promises none.
func inOrder(v any) any {
	switch v := v.(type) {
	case document:
		for key, one := range v {
			v[key] = inOrder(one)
		}
	case []any:
		for n, one := range v {
			v[n] = inOrder(one)
		}
		slices.SortFunc(v, func(a, b any) int {
			left, _ := json.Marshal(a)
			right, _ := json.Marshal(b)
			return strings.Compare(string(left), string(right))
		})
	}
	return v
}

// shownCreation is the request for the load balancer without secrets.
func (d desired) shownCreation() document {
	all := jsondoc.Clone(d.create)
	certificates, _ := all["certificates"].(document)
	for name, c := range certificates {
		one, _ := c.(document)
		certificates[name] = secretDocument(one)
	}
	return all
}
