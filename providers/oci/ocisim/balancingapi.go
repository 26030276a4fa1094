package ocisim

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/oci/ocilimits"
)

var (
	balancerPath = regexp.MustCompile(`^/20170115/loadBalancers(?:/([^/]+)(?:/([A-Za-z]+)(?:/([^/]+))?)?)?$`)
	workPath     = regexp.MustCompile(`^/20170115/loadBalancerWorkRequests/([^/]+)$`)
)

// balancerOperation names a call of load balancers without identifiers; "" is none.
func balancerOperation(r *http.Request) string {
	if workPath.MatchString(r.URL.Path) {
		return r.Method + " /loadBalancerWorkRequests/{id}"
	}
	return partOperation(r.Method+" /loadBalancers", balancerPath.FindStringSubmatch(r.URL.Path))
}

// partOperation names a call by what its path matched: the load balancer, the kind of a part, and the part; "" where nothing did.
func partOperation(name string, match []string) string {
	if match == nil {
		return ""
	}
	if match[1] != "" {
		name += "/{id}"
	}
	if match[2] != "" {
		name += "/" + match[2]
	}
	if match[3] != "" {
		name += "/{name}"
	}
	return name
}

// serveBalancers answers calls about load balancers; it returns false where the path is about something else.
func (s *Sim) serveBalancers(w http.ResponseWriter, r *http.Request, body []byte) bool {
	s.settle()
	if match := workPath.FindStringSubmatch(r.URL.Path); match != nil {
		found := s.works.find(match[1])
		if r.Method != http.MethodGet || found == nil || s.blind {
			notFound(w)
			return true
		}
		write(w, http.StatusOK, found.shown())
		return true
	}
	match := balancerPath.FindStringSubmatch(r.URL.Path)
	if match == nil {
		return false
	}
	id, kind := match[1], match[2]
	name, _ := url.PathUnescape(match[3])
	lb := s.balancer(id)
	switch {
	case id == "" && r.Method == http.MethodPost:
		s.create(w, r, body)
	case id == "":
		s.listBalancers(w, r)
	case lb == nil || s.blind:
		notFound(w)
	case r.Method == http.MethodGet && kind == "":
		w.Header().Set("Etag", lb.etag())
		write(w, http.StatusOK, lb.shown())
	case r.Method == http.MethodGet && kind == "workRequests":
		s.listWorks(w, r, lb)
	case r.Method == http.MethodGet:
		fail(w, http.StatusNotFound, "NotFound", "there is no such path")
	default:
		s.change(w, r, lb, kind, name, body)
	}
	return true
}

func notFound(w http.ResponseWriter) {
	fail(w, http.StatusNotFound, "NotAuthorizedOrNotFound", "Authorization failed or requested resource not found.")
}

func (s *Sim) listBalancers(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	compartment := query.Get("compartmentId")
	switch {
	case r.Method != http.MethodGet:
		fail(w, http.StatusMethodNotAllowed, "MethodNotAllowed", "there is no such call")
		return
	case compartment == "":
		fail(w, http.StatusBadRequest, "MissingParameter", "compartmentId is missing")
		return
	case !s.hasCompartment(compartment):
		notFound(w)
		return
	}
	items := []any{}
	for _, lb := range s.balancers {
		if !s.blind && lb.Doc["compartmentId"] == compartment && (query.Get("displayName") == "" || query.Get("displayName") == lb.Name) {
			items = append(items, lb.shown())
		}
	}
	s.page(w, r, items)
}

// listWorks lists work requests, the newest first.
func (s *Sim) listWorks(w http.ResponseWriter, r *http.Request, lb *LoadBalancer) {
	items := []any{}
	for _, work := range slices.Backward(s.works) {
		if work.target == lb.ID {
			items = append(items, work.shown())
		}
	}
	s.page(w, r, items)
}

// change begins a change of a load balancer.
func (s *Sim) change(w http.ResponseWriter, r *http.Request, lb *LoadBalancer, kind, name string, body []byte) {
	method := r.Method
	deletion := method == http.MethodDelete && kind == ""
	switch {
	case outdated(w, r, lb.etag()):
		return
	case s.works.isBusy(lb.ID):
		fail(w, http.StatusConflict, "Conflict", "another work request runs on load balancer "+lb.ID)
		return
	case lb.State == stateDeleted || lb.State == stateDeleting:
		notFound(w)
		return
	case lb.State != stateActive && !deletion:
		fail(w, http.StatusConflict, "IncorrectState", "the load balancer is "+lb.State)
		return
	case deletion && lb.Doc["isDeleteProtectionEnabled"] == true:
		fail(w, http.StatusConflict, "IncorrectState", "delete protection is enabled for load balancer "+lb.ID)
		return
	case deletion:
		if lb.State == stateActive {
			lb.State = stateDeleting
		}
		accept(w, s.begin("DeleteLoadBalancer", lb, func(lb *LoadBalancer) { lb.State, lb.ended = stateDeleted, s.currentTime() }).id)
		return
	}
	var d document
	if len(body) > 0 {
		if err := json.Unmarshal(body, &d); err != nil {
			fail(w, http.StatusBadRequest, "CannotParseRequest", err.Error())
			return
		}
	}
	if overLimit(w, countParts(withPart(lb.Doc, kind, name, d))) {
		return
	}
	apply, work, status, why := s.plan(method, lb, kind, name, d)
	if why != "" {
		code := map[int]string{http.StatusBadRequest: "InvalidParameter", http.StatusNotFound: "NotAuthorizedOrNotFound", http.StatusConflict: "Conflict"}[status]
		fail(w, status, code, why)
		return
	}
	accept(w, s.begin(work, lb, apply).id)
}

// plan says what a change does, or why it is refused.
func (s *Sim) plan(method string, lb *LoadBalancer, kind, name string, d document) (
	apply func(*LoadBalancer), work string, status int, why string,
) {
	word := map[string]string{http.MethodPost: "Create", http.MethodPut: "Update", http.MethodDelete: "Delete"}[method]
	if form, is := partShapes()[kind]; is && word != "" {
		return s.planPart(method, lb, kind, name, d, form, word)
	}
	switch {
	case kind == "updateShape" && method == http.MethodPut:
		return func(lb *LoadBalancer) {
			lb.Doc["shapeName"], lb.Doc["shapeDetails"] = d["shapeName"], d["shapeDetails"]
		}, "UpdateShape", http.StatusBadRequest, judgeShape(d, shapeShape().judge("updateShape", d))
	case kind == "networkSecurityGroups" && method == http.MethodPut:
		why := groupsShape().judge("networkSecurityGroups", d)
		if why == "" {
			why = s.judgeGroups(d)
		}
		return func(lb *LoadBalancer) { lb.Doc["networkSecurityGroupIds"] = d["networkSecurityGroupIds"] },
			"UpdateNetworkSecurityGroups", http.StatusBadRequest, why
	}
	return nil, "", http.StatusNotFound, "there is no such path"
}

// judgeGroups is about groups that must be there.
func (s *Sim) judgeGroups(d document) string {
	s.listsOnce()
	for _, id := range list(d["networkSecurityGroupIds"]) {
		if find(s.groups, fmt.Sprint(id)) == nil {
			return fmt.Sprintf("there is no network security group %v", id)
		}
	}
	return ""
}

// partShapes are those of the parts that have names.
func partShapes() map[string]shape {
	return map[string]shape{
		"backendSets": backendSetShape(), "listeners": listenerShape(), "certificates": certificateShape(), "ruleSets": ruleSetShape(),
	}
}

// planPart says what a change of a part does that has a name.
func (s *Sim) planPart(method string, lb *LoadBalancer, kind, name string, d document, form shape, word string) (
	apply func(*LoadBalancer), work string, status int, why string,
) {
	work = word + strings.ToUpper(kind[:1]) + kind[1:len(kind)-1]
	switch {
	case method == http.MethodPost && kind == "certificates":
		name, _ = d["certificateName"].(string)
	case method == http.MethodPost:
		form.fields["name"] = field{kind: "string", must: true, form: map[string]string{
			"backendSets": `^[A-Za-z0-9_-]{1,32}$`, "listeners": `^[A-Za-z0-9_.-]{1,255}$`, "ruleSets": `^[A-Za-z][A-Za-z0-9_]{0,31}$`,
		}[kind]}
		name, _ = d["name"].(string)
	case part(lb.Doc, kind)[name] == nil:
		return nil, "", http.StatusNotFound, "there is no " + name
	case method == http.MethodPut && kind == "certificates":
		return nil, "", http.StatusNotFound, "a certificate cannot be changed"
	}
	switch {
	case method == http.MethodPost && part(lb.Doc, kind)[name] != nil:
		return nil, "", http.StatusConflict, name + " exists"
	case method == http.MethodDelete:
		user := referredBy(lb.Doc, kind, name)
		if kind == "backendSets" {
			user = usedBy(lb.Doc, name)
		}
		if user != "" {
			return nil, "", http.StatusBadRequest, user + " uses it"
		}
		return func(lb *LoadBalancer) { delete(part(lb.Doc, kind), name) }, work, 0, ""
	}
	if why = form.judge(kind, d); why == "" {
		why = judgePart(lb.Doc, kind, name, d)
	}
	if kind == "certificates" {
		d = withoutKey(d)
	}
	return func(lb *LoadBalancer) {
		delete(d, "name")
		part(lb.Doc, kind)[name] = d
	}, work, http.StatusBadRequest, why
}

// withPart returns a load balancer with a part that it is about to get.
func withPart(whole document, kind, name string, d document) document {
	if part(whole, kind) == nil || d == nil {
		return whole
	}
	after, parts := maps.Clone(whole), maps.Clone(part(whole, kind))
	parts[cmp.Or(name, fmt.Sprint(d["name"]))] = d
	after[kind] = parts
	return after
}

// countParts returns an error where a load balancer has more than the cloud takes.
func countParts(whole document) error {
	backends := 0
	for _, v := range part(whole, "backendSets") {
		set, _ := v.(document)
		backends += len(list(set["backends"]))
	}
	return cmp.Or(ocilimits.Listeners.CheckNumber(len(part(whole, "listeners"))), ocilimits.BackendSets.CheckNumber(len(part(whole, "backendSets"))),
		ocilimits.Backends.CheckNumber(backends))
}

// judgePart is about what a part has to do with the rest.
func judgePart(whole document, kind, name string, d document) string {
	switch kind {
	case "certificates":
		return judgeCertificate(d)
	case "ruleSets":
		return judgeItems(d)
	case "listeners":
		if why := judgeListener(whole, name, d); why != "" {
			return why
		}
	}
	return judgeRefs(whole, d)
}

// usedBy is a listener that uses a backend set.
func usedBy(d document, set string) string {
	for name, l := range part(d, "listeners") {
		if l.(document)["defaultBackendSetName"] == set { //nolint:forcetypeassert // checked when it was written
			return name
		}
	}
	return ""
}

// judgeListener is about what a listener has to do with the rest.
func judgeListener(d document, name string, l document) string {
	if set := fmt.Sprint(l["defaultBackendSetName"]); part(d, "backendSets")[set] == nil {
		return "there is no backend set " + set
	}
	for other, o := range part(d, "listeners") {
		if other != name && o.(document)["port"] == l["port"] { //nolint:forcetypeassert // checked when it was written
			return "listener " + other + " has the port"
		}
	}
	return ""
}

func judgeShape(d document, why string) string {
	details := part(d, "shapeDetails")
	if why != "" || d["shapeName"] != "flexible" {
		return why
	}
	least, _ := details["minimumBandwidthInMbps"].(float64)
	most, _ := details["maximumBandwidthInMbps"].(float64)
	if least == 0 || most < least {
		return "shapeDetails of a flexible shape need a minimum that is not above the maximum"
	}
	return ""
}

// judgeCreation says why a load balancer cannot be made.
func (s *Sim) judgeCreation(d document) (code, why string) {
	if why := judgeShape(d, creationShape().judge("loadBalancer", d)); why != "" {
		return "InvalidParameter", why
	}
	if !s.hasCompartment(fmt.Sprint(d["compartmentId"])) {
		return "RelatedResourceNotAuthorizedOrNotFound", "there is no such compartment"
	}
	for _, id := range list(d["subnetIds"]) {
		if _, known := s.subnet(fmt.Sprint(id)); !known {
			return "RelatedResourceNotAuthorizedOrNotFound", fmt.Sprintf("there is no subnet %v", id)
		}
	}
	if why := s.judgeGroups(d); why != "" {
		return "RelatedResourceNotAuthorizedOrNotFound", why
	}
	if why := s.judgeReservation(d); why != "" {
		return "InvalidParameter", why
	}
	if why := judgeParts(d); why != "" {
		return "InvalidParameter", why
	}
	return "", ""
}

// judgeReservation is about the reserved address of a new load balancer.
func (s *Sim) judgeReservation(d document) string {
	for _, v := range list(d["reservedIps"]) {
		id := v.(document)["id"] //nolint:forcetypeassert // its shape was judged
		at := slices.IndexFunc(s.reserved, func(r *reserved) bool { return r.id == id && r.state == "AVAILABLE" })
		if at < 0 || d["isPrivate"] == true {
			return "the reserved address cannot be used"
		}
	}
	return ""
}

// judgeParts is about the parts of a new load balancer.
func judgeParts(d document) string {
	for name := range part(d, "backendSets") {
		if !regexp.MustCompile(`^[A-Za-z0-9_-]{1,32}$`).MatchString(name) {
			return name + " is no name of a backend set"
		}
	}
	for _, kind := range []string{"certificates", "ruleSets", "backendSets", "listeners"} {
		for name, v := range part(d, kind) {
			one := v.(document) //nolint:forcetypeassert // its shape was judged
			if kind == "certificates" && one["certificateName"] != name {
				return "certificateName is not the key " + name
			}
			if why := judgePart(d, kind, name, one); why != "" {
				return why
			}
		}
	}
	return ""
}
