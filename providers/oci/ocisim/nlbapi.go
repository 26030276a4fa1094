package ocisim

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/oci/ocilimits"
)

const networkBase = "/20200501/"

var (
	networkPath     = regexp.MustCompile(`^/20200501/networkLoadBalancers(?:/([^/]+)(?:/([A-Za-z]+)(?:/([^/]+))?)?)?$`)
	networkWorkPath = regexp.MustCompile(`^/20200501/workRequests(?:/([^/]+)(/errors)?)?$`)
)

// networkOperation names a call of network load balancers without identifiers; "" is none.
func networkOperation(r *http.Request) string {
	if match := networkWorkPath.FindStringSubmatch(r.URL.Path); match != nil {
		if match[1] == "" {
			return r.Method + " /workRequests"
		}
		return r.Method + " /workRequests/{id}" + match[2]
	}
	return partOperation(r.Method+" /networkLoadBalancers", networkPath.FindStringSubmatch(r.URL.Path))
}

// serveNetworkBalancers answers calls about network load balancers; it returns false where the path is about something else.
func (s *Sim) serveNetworkBalancers(w http.ResponseWriter, r *http.Request, body []byte) bool {
	if !strings.HasPrefix(r.URL.Path, networkBase) {
		return false
	}
	s.settleNetwork()
	if s.unserved {
		notFound(w)
		return true
	}
	if match := networkWorkPath.FindStringSubmatch(r.URL.Path); match != nil {
		s.serveNetworkWork(w, r, match[1], match[2] != "")
		return true
	}
	match := networkPath.FindStringSubmatch(r.URL.Path)
	if match == nil {
		fail(w, http.StatusNotFound, "NotFound", "there is no such path")
		return true
	}
	id, kind := match[1], match[2]
	name, _ := url.PathUnescape(match[3])
	lb := s.nlb(id)
	switch {
	case id == "" && r.Method == http.MethodPost:
		s.createNetwork(w, r, body)
	case id == "":
		s.listNetwork(w, r)
	case lb == nil || s.blind:
		notFound(w)
	case r.Method == http.MethodGet && kind == "":
		w.Header().Set("Etag", lb.etag())
		write(w, http.StatusOK, lb.shown())
	case r.Method == http.MethodGet:
		fail(w, http.StatusNotFound, "NotFound", "there is no such path")
	case !outdated(w, r, lb.etag()):
		s.changeNetwork(w, r.Method, lb, kind, name, body)
	}
	return true
}

func (lb *NetworkLoadBalancer) etag() string {
	return fmt.Sprintf("%s-%d", lb.ID[len(lb.ID)-6:], lb.version)
}

func itemsForm(some []any) any { return document{"items": some} }

// serveNetworkWork answers reads of work requests.
func (s *Sim) serveNetworkWork(w http.ResponseWriter, r *http.Request, id string, failures bool) {
	found := s.nlbWorks.find(id)
	switch {
	case r.Method != http.MethodGet:
		fail(w, http.StatusMethodNotAllowed, "MethodNotAllowed", "there is no such call")
	case id == "" && r.URL.Query().Get("compartmentId") == "":
		fail(w, http.StatusBadRequest, "MissingParameter", "compartmentId is missing")
	case id == "":
		items := []any{}
		for _, work := range slices.Backward(s.nlbWorks) {
			items = append(items, work.shownNetwork())
		}
		s.pageAs(w, r, items, itemsForm)
	case found == nil || s.blind || s.forgetful:
		notFound(w)
	case failures:
		items := []any{}
		if found.state == stateFailed {
			items = append(items, document{"code": "InvalidParameter", "message": found.failure, "timestamp": stamp(found.due)})
		}
		s.pageAs(w, r, items, itemsForm)
	default:
		w.Header().Set("Retry-After", "1")
		write(w, http.StatusOK, found.shownNetwork())
	}
}

func (s *Sim) listNetwork(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	for name := range query {
		if !slices.Contains([]string{"compartmentId", "displayName", "lifecycleState", "limit", "page", "sortBy", "sortOrder"}, name) {
			fail(w, http.StatusBadRequest, "InvalidParameter", "parameter "+name+" is not legal here")
			return
		}
	}
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
	for _, lb := range slices.Backward(s.nlbs) {
		if !s.blind && lb.Doc["compartmentId"] == compartment && (query.Get("displayName") == "" || query.Get("displayName") == lb.Name) {
			items = append(items, lb.shown())
		}
	}
	s.pageAs(w, r, items, itemsForm)
}

// createNetwork makes a network load balancer; the answer to a token that was used before is that of then.
func (s *Sim) createNetwork(w http.ResponseWriter, r *http.Request, body []byte) {
	sum := sha256.Sum256(body)
	key := r.Header.Get("Opc-Retry-Token")
	if before, used := s.tokens[key]; used && key != "" && time.Since(before.at) < tokensLast {
		begun := s.nlbWorks.find(before.work)
		switch {
		case before.sum != sum || begun == nil:
			fail(w, http.StatusConflict, "InvalidatedRetryToken", "the retry token was used with another request")
		case s.nlb(begun.target) == nil:
			notFound(w)
		default:
			acceptNetwork(w, before.work, s.nlb(begun.target))
		}
		return
	}
	var d document
	if err := json.Unmarshal(body, &d); err != nil {
		fail(w, http.StatusBadRequest, "CannotParseRequest", err.Error())
		return
	}
	code, why := s.judgeNetworkCreation(d)
	if why == "" {
		if why = s.judgeGroups(d); why != "" {
			code = "RelatedResourceNotAuthorizedOrNotFound"
		}
	}
	if why != "" {
		fail(w, http.StatusBadRequest, code, why)
		return
	}
	for _, l := range part(d, "listeners") {
		delete(l.(document), "name") //nolint:forcetypeassert // its shape was judged
	}
	name, _ := d["displayName"].(string)
	lb := s.addNetwork(name, d)
	made := s.beginNetwork("CREATE_NETWORK_LOAD_BALANCER", lb, func(lb *NetworkLoadBalancer) { lb.State = stateActive })
	if key != "" {
		if s.tokens == nil {
			s.tokens = map[string]token{}
		}
		s.tokens[key] = token{sum: sum, work: made.id, at: time.Now()}
	}
	acceptNetwork(w, made.id, lb)
}

// acceptNetwork is the answer to a creation: what is being made.
func acceptNetwork(w http.ResponseWriter, work string, lb *NetworkLoadBalancer) {
	w.Header().Set("Opc-Work-Request-Id", work)
	w.Header().Set("Etag", lb.etag())
	write(w, http.StatusCreated, lb.shown())
}

// changeNetwork begins a change. While the cloud works on one, it takes no other.
func (s *Sim) changeNetwork(w http.ResponseWriter, method string, lb *NetworkLoadBalancer, kind, name string, body []byte) {
	deletion := method == http.MethodDelete && kind == ""
	word := map[string]string{stateCreating: "Creating", stateUpdating: "Updating"}[lb.State]
	switch {
	case lb.State == stateDeleted || lb.State == stateDeleting:
		notFound(w)
		return
	case word != "":
		fail(w, http.StatusConflict, "IncorrectState", "Invalid State Transition of NLB lifeCycle state from "+word+" to Updating")
		return
	case deletion:
		lb.State = stateDeleting
		accept(w, s.beginNetwork("DELETE_NETWORK_LOAD_BALANCER", lb, func(lb *NetworkLoadBalancer) { lb.State, lb.ended = stateDeleted, s.currentTime() }).id)
		return
	}
	var d document
	if len(body) > 0 {
		if err := json.Unmarshal(body, &d); err != nil {
			fail(w, http.StatusBadRequest, "CannotParseRequest", err.Error())
			return
		}
	}
	if overLimit(w, ocilimits.NetworkListeners.CheckNumber(len(part(withPart(lb.Doc, kind, name, d), "listeners")))) {
		return
	}
	apply, work, status, why := s.planNetwork(method, lb, kind, name, d)
	if why != "" {
		code := map[int]string{http.StatusBadRequest: "InvalidParameter", http.StatusNotFound: "NotAuthorizedOrNotFound", http.StatusConflict: "Conflict"}[status]
		fail(w, status, code, why)
		return
	}
	id := s.beginNetwork(work, lb, apply).id
	lb.State = stateUpdating
	accept(w, id)
}

// planNetwork says what a change does, or why it is refused.
func (s *Sim) planNetwork(method string, lb *NetworkLoadBalancer, kind, name string, d document) (
	apply func(*NetworkLoadBalancer), work string, status int, why string,
) {
	update := func(lb *NetworkLoadBalancer) { maps.Copy(lb.Doc, d) }
	switch {
	case kind == "" && method == http.MethodPut:
		return func(lb *NetworkLoadBalancer) {
			update(lb)
			if lb.IPv6 == "" && lb.Doc["nlbIpVersion"] != versionIPv4 {
				lb.IPv6 = "2603:c020:0:ff::" + lb.ID[len(lb.ID)-4:]
			}
		}, "UPDATE_NETWORK_LOAD_BALANCER", http.StatusBadRequest, s.judgeNetworkUpdate(lb, d)
	case kind == "networkSecurityGroups" && method == http.MethodPut:
		why := networkGroupsShape().judge("networkSecurityGroups", d)
		if why == "" {
			why = s.judgeGroups(d)
		}
		return update, "UPDATE_NSGS", http.StatusBadRequest, why
	case kind == "backendSets" || kind == "listeners":
		return s.planNetworkPart(method, lb, kind, name, d)
	}
	return nil, "", http.StatusNotFound, "there is no such path"
}

// judgeNetworkUpdate is about the network load balancer itself.
func (s *Sim) judgeNetworkUpdate(lb *NetworkLoadBalancer, d document) string {
	if why := networkUpdateShape().judge("networkLoadBalancer", d); why != "" || d["nlbIpVersion"] == nil {
		return why
	}
	subnet, _ := s.subnet(fmt.Sprint(lb.Doc["subnetId"]))
	if why := judgeVersion(subnet, d["nlbIpVersion"]); why != "" {
		return why
	}
	for _, kind := range []string{"backendSets", "listeners"} {
		for name, v := range part(lb.Doc, kind) {
			if one := v.(document); !serves(d, versionOf(one)) { //nolint:forcetypeassert // checked when it was written
				return name + " is of " + versionOf(one)
			}
		}
	}
	return ""
}

// planNetworkPart says what a change of a backend set or a listener does. What an update does not name stays.
func (s *Sim) planNetworkPart(method string, lb *NetworkLoadBalancer, kind, name string, d document) (
	apply func(*NetworkLoadBalancer), work string, status int, why string,
) {
	word := map[string]string{http.MethodPost: "CREATE_", http.MethodPut: "UPDATE_", http.MethodDelete: "DELETE_"}[method]
	work = word + map[string]string{"backendSets": "BACKENDSET", "listeners": "LISTENER"}[kind]
	form := map[string]func(bool) shape{"backendSets": networkSetShape, "listeners": networkListenerShape}[kind](method == http.MethodPost)
	if method == http.MethodPost {
		name, _ = d["name"].(string)
		form.fields["name"] = partName()
	}
	there := part(part(lb.Doc, kind), name)
	switch {
	case method == http.MethodPost && there != nil:
		return nil, "", http.StatusConflict, name + " exists"
	case method != http.MethodPost && there == nil:
		return nil, "", http.StatusNotFound, "there is no " + name
	case method == http.MethodDelete && kind == "backendSets" && usedBy(lb.Doc, name) != "":
		return nil, "", http.StatusBadRequest, "listener " + usedBy(lb.Doc, name) + " uses it"
	case method == http.MethodDelete:
		return func(lb *NetworkLoadBalancer) { delete(part(lb.Doc, kind), name) }, work, 0, ""
	}
	if why := form.judge(kind, d); why != "" {
		return nil, "", http.StatusBadRequest, why
	}
	after := document{}
	maps.Copy(after, there)
	maps.Copy(after, d)
	delete(after, "name")
	if kind == "backendSets" {
		why = s.judgeNetworkSet(lb.Doc, name, after)
	} else {
		why = judgeNetworkListener(lb.Doc, name, after)
	}
	return func(lb *NetworkLoadBalancer) { part(lb.Doc, kind)[name] = after }, work, http.StatusBadRequest, why
}
