package ocisim

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/kit/jsondoc"
	"github.com/anyccm/cloud-controller-manager/providers/oci/ocilimits"
)

// The security lists: DefaultList is that of the network, as it is made with it, BalancerList and NewerList are those of the subnets
// of load balancers, of which the older one counts.
const (
	DefaultList  = "ocid1.securitylist.oc1.phx.aaaadefault"
	BalancerList = "ocid1.securitylist.oc1.phx.aaaabalancers"
	NewerList    = "ocid1.securitylist.oc1.phx.aaaanewer"

	ingressField = "ingressSecurityRules"
	egressField  = "egressSecurityRules"
)

// guarded is a security list or a network security group. Its version is its ETag.
type guarded struct {
	id      string
	doc     document
	version int
	// rules are those of a group, ended is when it was deleted, and token the retry token that it was made with.
	rules []document
	ended time.Time
	token string
}

func (g *guarded) etag() string { return "etag" + strconv.Itoa(g.version) }

// security holds security lists and network security groups.
type security struct {
	lists, groups []*guarded
	ruleSerial    int
	// opened is set where all ports are open whatever lists and groups say.
	opened bool
	// beforeWrite runs once before the next write of a security list, as somebody does who writes at the same time.
	beforeWrite func()
}

// listsOnce makes the lists that a network begins with.
func (s *Sim) listsOnce() {
	if s.lists != nil {
		return
	}
	usual := func() []any {
		return []any{
			document{
				"protocol": "6", "source": "0.0.0.0/0", "isStateless": false, "tcpOptions": document{"destinationPortRange": document{"min": 22.0, "max": 22.0}},
			},
			document{"protocol": "1", "source": "10.0.0.0/8", "isStateless": false, "icmpOptions": document{"type": 3.0}},
		}
	}
	for n, id := range []string{NewerList, DefaultList, BalancerList} {
		s.lists = append(s.lists, &guarded{id: id, doc: document{
			"displayName": "list " + strconv.Itoa(n), "timeCreated": fmt.Sprintf("2025-%02d-01T00:00:00.000Z", 9-n),
			ingressField: usual(), egressField: []any{document{"protocol": "6", "destination": "10.0.0.0/8", "isStateless": false}},
		}})
	}
	for n := range 3 {
		s.groups = append(s.groups, &guarded{id: GroupID(n + 1), doc: document{
			"displayName": "by hand", "compartmentId": Compartment, "vcnId": VCN, "lifecycleState": "AVAILABLE",
			"timeCreated": "2025-01-01T00:00:00.000Z",
		}})
	}
}

// guardedState are security lists or groups with their rules, as State shows them.
func guardedState(all []*guarded) map[string]any {
	shown := map[string]any{}
	for _, g := range all {
		if g.ended.IsZero() {
			shown[g.id] = map[string]any{"document": filled(g.doc), "rules": g.rules}
		}
	}
	return shown
}

func find(all []*guarded, id string) *guarded {
	at := slices.IndexFunc(all, func(g *guarded) bool { return g.id == id && g.ended.IsZero() })
	if at < 0 {
		return nil
	}
	return all[at]
}

// SecurityRules are the rules of a security list, as "ingress 6 80 0.0.0.0/0", in order, but for those of the beginning.
func (s *Sim) SecurityRules(list string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listsOnce()
	all := []string{}
	g := find(s.lists, list)
	for direction, field := range map[string]string{"ingress": ingressField, "egress": egressField} {
		for _, r := range g.doc[field].([]any) { //nolint:forcetypeassert // checked when it was written
			if text := ruleText(direction, r.(document)); text != "" { //nolint:forcetypeassert // checked when it was written
				all = append(all, text)
			}
		}
	}
	slices.Sort(all)
	return all
}

// ruleText is a rule about a port that is not SSH's; "" is another one.
func ruleText(direction string, r document) string {
	options := part(r, "tcpOptions")
	if options == nil {
		options = part(r, "udpOptions")
	}
	ports := part(options, "destinationPortRange")
	if ports == nil || ports["min"] == 22.0 {
		return ""
	}
	text := fmt.Sprintf("%s %v %v", direction, r["protocol"], ports["min"])
	if ports["min"] != ports["max"] {
		text += fmt.Sprintf("-%v", ports["max"])
	}
	side := r["source"]
	if side == nil {
		side = r["destination"]
	}
	return fmt.Sprintf("%s %v", text, side)
}

// EditList changes a security list, as somebody does by hand.
func (s *Sim) EditList(id string, change func(ingress, egress []any) (in, out []any)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listsOnce()
	s.editList(id, change)
}

func (s *Sim) editList(id string, change func(ingress, egress []any) (in, out []any)) {
	g := find(s.lists, id)
	in, out := change(list(g.doc[ingressField]), list(g.doc[egressField]))
	g.doc[ingressField], g.doc[egressField] = jsondoc.CloneValue(in), jsondoc.CloneValue(out)
	g.version++
}

// InterfereOnce has somebody write a security list right before the next write of one.
func (s *Sim) InterfereOnce(id string, change func(ingress, egress []any) (in, out []any)) {
	s.mu.Do(func() { s.beforeWrite = func() { s.editList(id, change) } })
}

// Group is a network security group as tests see it.
type Group struct {
	ID, Name string
	Tags     map[string]any
	// Rules are as those of SecurityRules, with their descriptions.
	Rules []string
}

// Groups returns the network security groups, in order of their names.
func (s *Sim) Groups() []Group {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listsOnce()
	var all []Group
	for _, g := range s.groups {
		if !g.ended.IsZero() {
			continue
		}
		one := Group{ID: g.id, Name: fmt.Sprint(g.doc["displayName"]), Tags: part(jsondoc.Clone(g.doc), "freeformTags")}
		for _, r := range g.rules {
			direction, _ := r["direction"].(string)
			one.Rules = append(one.Rules, fmt.Sprintf("%s (%v)", ruleText(strings.ToLower(direction), r), r["description"]))
		}
		slices.Sort(one.Rules)
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b Group) int { return strings.Compare(a.Name+a.ID, b.Name+b.ID) })
	return all
}

// EditGroup changes a network security group, as somebody does by hand.
func (s *Sim) EditGroup(id string, change func(document)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listsOnce()
	g := find(s.groups, id)
	change(g.doc)
	g.version++
}

// EditGroupRules changes the rules of a network security group, as somebody does by hand.
func (s *Sim) EditGroupRules(id string, change func([]document) []document) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listsOnce()
	g := find(s.groups, id)
	g.rules = change(slices.Clone(g.rules))
	g.version++
}

var securityPath = regexp.MustCompile(`^/20160918/(securityLists|networkSecurityGroups)(?:/([^/]+)(/securityRules|/actions/addSecurityRules|/actions/removeSecurityRules)?)?$`)

const byAddressPath = "/20160918/publicIps/actions/getByIpAddress"

// securityOperation names a call about what lets traffic in; "" is none.
func securityOperation(r *http.Request) string {
	if r.URL.Path == byAddressPath {
		return "POST /publicIps/actions/getByIpAddress"
	}
	match := securityPath.FindStringSubmatch(r.URL.Path)
	if match == nil {
		return ""
	}
	name := r.Method + " /" + match[1]
	if match[2] != "" {
		name += "/{id}" + match[3]
	}
	return name
}

// serveSecurity answers calls about security lists, network security groups and reserved addresses; it returns false where the path
// is about something else.
func (s *Sim) serveSecurity(w http.ResponseWriter, r *http.Request, body []byte) bool {
	if r.URL.Path == byAddressPath && r.Method == http.MethodPost {
		s.byAddress(w, body)
		return true
	}
	match := securityPath.FindStringSubmatch(r.URL.Path)
	if match == nil {
		return false
	}
	s.listsOnce()
	s.settle()
	all := s.lists
	if match[1] == "networkSecurityGroups" {
		all = s.groups
	}
	g := find(all, match[2])
	switch {
	case match[2] == "" && match[1] == "networkSecurityGroups":
		s.serveGroups(w, r, body)
	case match[2] == "" || match[3] != "" && match[1] == "securityLists":
		fail(w, http.StatusNotFound, "NotFound", "there is no such path")
	case g == nil || s.blind:
		notFound(w)
	case match[1] == "securityLists":
		s.serveList(w, r, g, body)
	default:
		s.serveGroup(w, r, g, match[3], body)
	}
	return true
}

// serveGroups answers calls about all groups.
func (s *Sim) serveGroups(w http.ResponseWriter, r *http.Request, body []byte) {
	switch r.Method {
	case http.MethodGet:
		s.listGroups(w, r)
	case http.MethodPost:
		s.createGroup(w, r, body)
	default:
		fail(w, http.StatusMethodNotAllowed, "MethodNotAllowed", "there is no such call")
	}
}

// outdated answers a write whose ETag is not that of now.
func outdated(w http.ResponseWriter, r *http.Request, etag string) bool {
	if match := r.Header.Get("If-Match"); match != "" && match != etag {
		fail(w, http.StatusPreconditionFailed, "NoEtagMatch", "the ETag does not match")
		return true
	}
	return false
}

func (s *Sim) serveList(w http.ResponseWriter, r *http.Request, g *guarded, body []byte) {
	switch r.Method {
	case http.MethodGet:
	case http.MethodPut:
		if s.beforeWrite != nil {
			s.beforeWrite()
			s.beforeWrite = nil
		}
		d, ok := decode(w, r, body, g, securityListShape())
		if !ok {
			return
		}
		for _, field := range []string{ingressField, egressField} {
			if d[field] != nil {
				g.doc[field] = d[field]
			}
		}
		g.version++
	default:
		fail(w, http.StatusMethodNotAllowed, "MethodNotAllowed", "there is no such call")
		return
	}
	shown := filled(g.doc)
	shown["id"], shown["compartmentId"], shown["vcnId"], shown["lifecycleState"] = g.id, Compartment, VCN, "AVAILABLE"
	shown["freeformTags"], shown["definedTags"] = document{}, document{}
	w.Header().Set("Etag", g.etag())
	write(w, http.StatusOK, shown)
}

// filled is a document of a security list as the cloud shows it.
func filled(doc document) document {
	shown := jsondoc.Clone(doc)
	for field, side := range map[string]string{ingressField: "source", egressField: "destination"} {
		for _, v := range list(shown[field]) {
			fillRule(v.(document), side) //nolint:forcetypeassert // checked when it was written
		}
	}
	return shown
}

// fillRule fills in what the cloud shows of a rule that nobody set.
func fillRule(r document, side string) {
	if r[side+"Type"] == nil {
		r[side+"Type"] = "CIDR_BLOCK"
	}
	if r["isStateless"] == nil {
		r["isStateless"] = false
	}
	for _, name := range []string{"description", "icmpOptions", "tcpOptions", "udpOptions"} {
		if r[name] == nil {
			r[name] = nil
		}
	}
	if options := part(r, "tcpOptions"); options != nil && options["sourcePortRange"] == nil {
		options["sourcePortRange"] = nil
	}
}

// decode reads a body, and judges it.
func decode(w http.ResponseWriter, r *http.Request, body []byte, g *guarded, form shape) (document, bool) {
	if g != nil && outdated(w, r, g.etag()) {
		return nil, false
	}
	var d document
	if err := json.Unmarshal(body, &d); err != nil {
		fail(w, http.StatusBadRequest, "CannotParseRequest", err.Error())
		return nil, false
	}
	if why := form.judge("body", d); why != "" {
		fail(w, http.StatusBadRequest, "InvalidParameter", why)
		return nil, false
	}
	return d, true
}

func (g *guarded) shown() document {
	d := jsondoc.Clone(g.doc)
	d["id"] = g.id
	for _, name := range []string{"freeformTags", "definedTags"} {
		if d[name] == nil {
			d[name] = document{}
		}
	}
	if !g.ended.IsZero() {
		d["lifecycleState"] = "TERMINATED"
	}
	return d
}

func (s *Sim) listGroups(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	if c := query.Get("compartmentId"); c == "" {
		fail(w, http.StatusBadRequest, "MissingParameter", "compartmentId is missing")
		return
	} else if !s.hasCompartment(c) {
		notFound(w)
		return
	}
	items := []any{}
	for _, g := range s.groups {
		d := g.shown()
		fits := !s.blind
		for _, name := range []string{"compartmentId", "vcnId", "displayName"} {
			fits = fits && (query.Get(name) == "" || query.Get(name) == d[name])
		}
		if fits {
			items = append(items, d)
		}
	}
	s.page(w, r, items)
}

func (s *Sim) createGroup(w http.ResponseWriter, r *http.Request, body []byte) {
	token := r.Header.Get("Opc-Retry-Token")
	d, ok := decode(w, r, body, nil, groupShape(true))
	if !ok {
		return
	}
	if d["vcnId"] != VCN || !s.hasCompartment(fmt.Sprint(d["compartmentId"])) {
		notFound(w)
		return
	}
	for _, g := range s.groups {
		if token != "" && g.token == token {
			w.Header().Set("Etag", g.etag())
			write(w, http.StatusOK, g.shown())
			return
		}
	}
	g := s.addGroup(d, token)
	w.Header().Set("Etag", g.etag())
	write(w, http.StatusOK, g.shown())
}

// addGroup makes a network security group.
func (s *Sim) addGroup(d document, token string) *guarded {
	s.serial++
	d["lifecycleState"], d["timeCreated"] = "AVAILABLE", stamp(time.Now())
	g := &guarded{id: fmt.Sprintf("ocid1.networksecuritygroup.oc1.phx.aaaamade%06d", s.serial), doc: d, token: token}
	s.groups = append(s.groups, g)
	return g
}

// AddGroup makes a network security group, as somebody does by hand, and returns its OCID.
func (s *Sim) AddGroup(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listsOnce()
	return s.addGroup(document{"compartmentId": Compartment, "vcnId": VCN, "displayName": name}, "").id
}

func (s *Sim) serveGroup(w http.ResponseWriter, r *http.Request, g *guarded, action string, body []byte) {
	switch r.Method + action {
	case http.MethodGet:
		w.Header().Set("Etag", g.etag())
		write(w, http.StatusOK, g.shown())
	case http.MethodPut:
		d, ok := decode(w, r, body, g, groupShape(false))
		if !ok {
			return
		}
		maps.Copy(g.doc, d)
		g.version++
		w.Header().Set("Etag", g.etag())
		write(w, http.StatusOK, g.shown())
	case http.MethodDelete:
		s.deleteGroup(w, r, g)
	case "GET/securityRules":
		s.listRules(w, r, g)
	case "POST/actions/addSecurityRules":
		s.addRules(w, r, g, body)
	case "POST/actions/removeSecurityRules":
		s.removeRules(w, r, g, body)
	default:
		fail(w, http.StatusMethodNotAllowed, "MethodNotAllowed", "there is no such call")
	}
}

// listRules writes a page of the rules of a group, of one direction where that is asked for.
func (s *Sim) listRules(w http.ResponseWriter, r *http.Request, g *guarded) {
	direction := r.URL.Query().Get("direction")
	if r.URL.Query().Has("direction") && direction != "INGRESS" && direction != "EGRESS" {
		fail(w, http.StatusBadRequest, "InvalidParameter", "direction is INGRESS or EGRESS")
		return
	}
	items := []any{}
	for _, rule := range g.rules {
		if direction == "" || rule["direction"] == direction {
			items = append(items, rule)
		}
	}
	s.page(w, r, items)
}

func (s *Sim) deleteGroup(w http.ResponseWriter, r *http.Request, g *guarded) {
	if outdated(w, r, g.etag()) {
		return
	}
	for _, lb := range s.balancers {
		if lb.State != stateDeleted && slices.Contains(list(lb.Doc["networkSecurityGroupIds"]), any(g.id)) {
			fail(w, http.StatusConflict, "IncorrectState", "The network security group has VNICs attached.")
			return
		}
	}
	for _, lb := range s.nlbs {
		if lb.State != stateDeleted && slices.Contains(list(lb.Doc["networkSecurityGroupIds"]), any(g.id)) {
			fail(w, http.StatusConflict, "IncorrectState", "The network security group has VNICs attached.")
			return
		}
	}
	for _, other := range s.groups {
		for _, rule := range other.rules {
			if rule["source"] == g.id || rule["destination"] == g.id {
				rule["isValid"] = false
			}
		}
	}
	g.ended = time.Now()
	w.WriteHeader(http.StatusNoContent)
}

func (s *Sim) addRules(w http.ResponseWriter, r *http.Request, g *guarded, body []byte) {
	d, ok := decode(w, r, body, nil, addRulesShape())
	if !ok {
		return
	}
	asked := list(d["securityRules"])
	if overLimit(w, ocilimits.GroupRules.CheckNumber(len(g.rules)+len(asked))) {
		return
	}
	for _, v := range asked {
		if why := s.judgeRule(v.(document)); why != "" { //nolint:forcetypeassert // its shape was judged
			fail(w, http.StatusBadRequest, "InvalidParameter", why)
			return
		}
	}
	made := []any{}
	for _, v := range asked {
		s.ruleSerial++
		rule := v.(document) //nolint:forcetypeassert // its shape was judged
		rule["id"], rule["isValid"], rule["timeCreated"] = fmt.Sprintf("%06X", s.ruleSerial), true, stamp(time.Now())
		if rule["isStateless"] == nil {
			rule["isStateless"] = false
		}
		g.rules = append(g.rules, rule)
		made = append(made, rule)
	}
	g.version++
	write(w, http.StatusOK, document{"securityRules": made})
}

// judgeRule is about what a rule of a group refers to.
func (s *Sim) judgeRule(rule document) string {
	side := map[any]string{"INGRESS": "source", "EGRESS": "destination"}[rule["direction"]]
	value, _ := rule[side].(string)
	switch {
	case value == "":
		return side + " is missing"
	case rule[side+"Type"] == "NETWORK_SECURITY_GROUP":
		if find(s.groups, value) == nil {
			return "there is no network security group " + value
		}
	case !isCIDR(value):
		return side + " is no CIDR block"
	}
	if options := map[any]string{"6": "udpOptions", "17": "tcpOptions"}[rule["protocol"]]; options != "" && rule[options] != nil {
		return options + " is of another protocol"
	}
	return ""
}

func (*Sim) removeRules(w http.ResponseWriter, r *http.Request, g *guarded, body []byte) {
	d, ok := decode(w, r, body, nil, shape{map[string]field{"securityRuleIds": {
		kind: "list", must: true, atLeast: 1, each: &field{kind: "string", form: `^[0-9A-F]{6}$`},
	}}})
	if !ok {
		return
	}
	ids := list(d["securityRuleIds"])
	for _, id := range ids {
		if !slices.ContainsFunc(g.rules, func(r document) bool { return r["id"] == id }) {
			notFound(w)
			return
		}
	}
	g.rules = slices.DeleteFunc(g.rules, func(r document) bool { return slices.Contains(ids, r["id"]) })
	g.version++
	w.WriteHeader(http.StatusNoContent)
}

// reserved is a reserved public address.
type reserved struct{ id, address, state string }

// AddReserved reserves a public address.
func (s *Sim) AddReserved(address string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := fmt.Sprintf("ocid1.publicip.oc1.phx.aaaareserved%02d", len(s.reserved)+1)
	s.reserved = append(s.reserved, &reserved{id, address, "AVAILABLE"})
	return id
}

// reservedState are reserved addresses as State shows them.
func reservedState(all []*reserved) map[string]any {
	shown := map[string]any{}
	for _, r := range all {
		shown[r.id] = map[string]any{"ipAddress": r.address, "lifecycleState": r.state}
	}
	return shown
}

func (s *Sim) byAddress(w http.ResponseWriter, body []byte) {
	var d document
	if err := json.Unmarshal(body, &d); err != nil {
		fail(w, http.StatusBadRequest, "CannotParseRequest", err.Error())
		return
	}
	if why := (shape{map[string]field{"ipAddress": {kind: "ip", must: true}}}).judge("body", d); why != "" {
		fail(w, http.StatusBadRequest, "InvalidParameter", why)
		return
	}
	s.settle()
	for _, r := range s.reserved {
		if r.address == d["ipAddress"] && !s.blind {
			write(w, http.StatusOK, document{
				"id": r.id, "ipAddress": r.address, "lifecycleState": r.state, "lifetime": "RESERVED", "scope": "REGION", "compartmentId": Compartment,
			})
			return
		}
	}
	notFound(w)
}
