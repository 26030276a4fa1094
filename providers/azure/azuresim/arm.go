package azuresim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/azure/azurelimits"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/registry/limits"
)

// object is a resource, or a part of one, as JSON has it.
type object = map[string]any

// resource is one of ARM's.
type resource struct {
	id, kind string
	doc      object
	etag     int
	busy     *operation
	created  time.Time
	power    string
	domain   int
}

func (r *resource) name() string { return r.id[strings.LastIndex(r.id, "/")+1:] }

// operation is work of the cloud's.
type operation struct {
	until   time.Time
	failure *failure
	compute bool
}

func (o *operation) isRunning() bool { return o != nil && time.Now().Before(o.until) }

// failure is an error answer.
type failure struct {
	status        int
	code, message string
	details       []any
	// cause is the limit that was exceeded, if any.
	cause error
}

func fail(status int, code, format string, args ...any) *failure {
	return &failure{status: status, code: code, message: fmt.Sprintf(format, args...)}
}

func invalid(code, format string, args ...any) *failure {
	return fail(http.StatusBadRequest, code, format, args...)
}

func (f *failure) body() object {
	inner := object{"code": f.code, "message": f.message}
	if f.details != nil {
		inner["details"] = f.details
	}
	return object{"error": inner}
}

func (f *failure) write(w http.ResponseWriter) {
	simkit.MarkLimit(w, f.cause)
	write(w, f.status, f.body())
}

func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // made of JSON
	}
	return data
}

func write(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(encode(v)) // client disconnected
}

// armPath is the path of a resource or of a listing.
type armPath struct {
	subscription, group, namespace string
	pairs                          []string // type, name, type, name …
	action                         string
}

// parsePath takes a path apart; names of types, groups and providers count in any case.
func parsePath(path string) (armPath, bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if len(parts) == 5 && strings.EqualFold(parts[0], "subscriptions") && strings.EqualFold(parts[2], "providers") {
		return armPath{subscription: parts[1], namespace: parts[3], pairs: parts[4:]}, true // a listing of all resource groups
	}
	if len(parts) < 6 || !strings.EqualFold(parts[0], "subscriptions") || !strings.EqualFold(parts[2], "resourceGroups") ||
		!strings.EqualFold(parts[4], "providers") {
		return armPath{}, false
	}
	p := armPath{subscription: parts[1], group: parts[3], namespace: parts[5], pairs: parts[6:]}
	if n := len(p.pairs); n > 0 && (p.pairs[n-1] == "instanceView" || p.pairs[n-1] == actionAddress) {
		p.action, p.pairs = p.pairs[n-1], p.pairs[:n-1]
	}
	return p, len(p.pairs) > 0
}

func (p armPath) single() bool { return len(p.pairs)%2 == 0 }

// kind is the type of the resource or of the listing's resources.
func (p armPath) kind() string {
	parts := []string{p.namespace}
	for i := 0; i < len(p.pairs); i += 2 {
		parts = append(parts, p.pairs[i])
	}
	name := strings.Join(parts, "/")
	for known := range kinds {
		if strings.EqualFold(known, name) {
			return known
		}
	}
	return name
}

// id is the key of the resource, or of what the listing is in.
func (p armPath) id() string {
	return "/subscriptions/" + p.subscription + "/resourceGroups/" + p.group + "/providers/" + p.namespace + "/" + strings.Join(p.pairs, "/")
}

// serveARM serves resources.
func (s *Sim) serveARM(w http.ResponseWriter, r *http.Request) *failure {
	if r.URL.Query().Get("api-version") == "" {
		return invalid("MissingApiVersionParameter", "The api-version query parameter (?api-version=) is required for all requests.")
	}
	if strings.Contains(r.URL.Path, "/operations/") {
		return s.serveOperation(w, r)
	}
	if strings.EqualFold(strings.Trim(r.URL.Path, "/"), "subscriptions/"+Subscription+"/providers/Microsoft.Compute") {
		return s.serveProvider(w, r)
	}
	p, ok := parsePath(r.URL.Path)
	if !ok {
		return fail(http.StatusNotFound, "InvalidResourceType", "The path '%s' is none of the simulated API.", r.URL.Path)
	}
	k, known := kinds[p.kind()]
	if !known {
		return fail(http.StatusNotFound, "InvalidResourceType", "The resource type could not be found in the namespace '%s'.", p.namespace)
	}
	if version := r.URL.Query().Get("api-version"); !slices.Contains(k.versions, version) {
		return invalid("NoRegisteredProviderFound", "No registered resource provider found for API version '%s' and type '%s'. The supported api-versions are '%s'.",
			version, p.kind(), strings.Join(k.versions, ", "))
	}
	if !strings.EqualFold(p.subscription, Subscription) {
		return fail(http.StatusNotFound, "SubscriptionNotFound", "The subscription '%s' could not be found.", p.subscription)
	}
	if !s.hasGroup(p.group) {
		return fail(http.StatusNotFound, "ResourceGroupNotFound", "Resource group '%s' could not be found.", p.group)
	}
	if f := s.interfere(r.Method, p); f != nil {
		return f
	}
	return s.serveResource(w, r, p, k)
}

// OtherGroup is a second resource group.
const OtherGroup = "other-rg"

// hasGroup reports whether there is a resource group; "" stands for all of them.
func (*Sim) hasGroup(name string) bool {
	return name == "" || strings.EqualFold(name, Group) || strings.EqualFold(name, OtherGroup)
}

func (s *Sim) serveResource(w http.ResponseWriter, r *http.Request, p armPath, k kind) *failure {
	found := s.resources[strings.ToLower(p.id())]
	switch {
	case p.action != "" && r.Method == http.MethodGet && found != nil:
		return s.serveAction(w, r, p.action, found)
	case !p.single() && r.Method == http.MethodGet:
		return s.serveListing(w, r, p, k)
	case !p.single() || !strings.Contains(k.methods, r.Method):
		return fail(http.StatusMethodNotAllowed, "HttpMethodNotAllowed", "The method %s is not allowed on %s.", r.Method, p.kind())
	case r.Method == http.MethodPut:
		return s.servePut(w, r, p, k, found)
	case found == nil && r.Method == http.MethodDelete:
		return s.deletePart(w, r, p, k)
	case found == nil && k.list != nil:
		return s.serveListed(w, p, k)
	case found == nil:
		return s.absent(p)
	case r.Method == http.MethodDelete:
		return s.serveDelete(w, r, p, k, found)
	default:
		answer := s.show(found, r.URL.Query().Get("$expand") == "instanceView")
		w.Header().Set("Etag", etagOf(found))
		write(w, http.StatusOK, answer)
	}
	return nil
}

// serveListed shows one of what is no resource by itself.
func (s *Sim) serveListed(w http.ResponseWriter, p armPath, k kind) *failure {
	parent := strings.ToLower(armPath{p.subscription, p.group, p.namespace, p.pairs[:len(p.pairs)-2], ""}.id())
	if s.resources[parent] != nil {
		for _, one := range k.list(s, parent) {
			if strings.EqualFold(text(one, "name"), p.pairs[len(p.pairs)-1]) {
				if etag := text(one, "etag"); etag != "" {
					w.Header().Set("Etag", etag)
				}
				write(w, http.StatusOK, one)
				return nil
			}
		}
	}
	return s.absent(p)
}

func (s *Sim) serveAction(w http.ResponseWriter, r *http.Request, action string, found *resource) *failure {
	if action == actionAddress {
		return s.serveAddressUse(w, r, found)
	}
	write(w, http.StatusOK, instanceView(found))
	return nil
}

// actionAddress asks a network whether an address is free.
const actionAddress = "CheckIPAddressAvailability"

func (s *Sim) serveAddressUse(w http.ResponseWriter, r *http.Request, network *resource) *failure {
	ip, err := netip.ParseAddr(r.URL.Query().Get("ipAddress"))
	inside := slices.ContainsFunc(strs(network.doc, "properties", "addressSpace", "addressPrefixes"), func(text string) bool {
		p, bad := netip.ParsePrefix(text)
		return err == nil && bad == nil && p.Contains(ip)
	})
	if !inside {
		return invalid("PrivateIPAddressNotInAnySubnet", "Private static IP address %s does not belong to the range of any subnet in the virtual network.", ip)
	}
	taken := s.privateTaken(ip.String(), "")
	for _, i := range s.all(kindInstance) {
		for _, nic := range s.interfacesOf(i) {
			taken = taken || hasAddress(nic, ip.String())
		}
	}
	for _, nic := range s.all(kindInterface) {
		taken = taken || hasAddress(nic.doc, ip.String())
	}
	write(w, http.StatusOK, object{"available": !taken})
	return nil
}

func hasAddress(nic object, ip string) bool {
	return slices.ContainsFunc(items(nic, "properties", "ipConfigurations"), func(c object) bool { return text(c, "properties", "privateIPAddress") == ip })
}

func (s *Sim) absent(p armPath) *failure {
	if name := p.pairs[len(p.pairs)-1]; p.kind() == kindInstance && strings.Trim(name, "0123456789") != "" {
		return invalid("InvalidParameter", "The value of parameter instanceIds is invalid: %s.", name)
	}
	if len(p.pairs) > 2 {
		return &failure{status: http.StatusNotFound, code: "NotFound", message: "Resource " + p.id() + " not found.", details: []any{}}
	}
	return fail(http.StatusNotFound, "ResourceNotFound", "The Resource '%s/%s' under resource group '%s' was not found. For more details please go to "+
		"https://aka.ms/ARMResourceNotFoundFix", p.kind(), p.pairs[1], p.group)
}

// serveListing writes a page.
func (s *Sim) serveListing(w http.ResponseWriter, r *http.Request, p armPath, k kind) *failure {
	parent := ""
	if len(p.pairs) > 1 {
		parent = strings.ToLower(strings.TrimSuffix(p.id(), "/"+p.pairs[len(p.pairs)-1]))
		if s.resources[parent] == nil {
			q := p
			q.pairs = p.pairs[:len(p.pairs)-1]
			return s.absent(q)
		}
	}
	query := r.URL.Query()
	if query.Has("$expand") && (p.kind() == kindMachine && !query.Has("$filter") || query.Get("$expand") != "instanceView") {
		return invalid("InvalidParameter", "The expand query parameter is not supported here.")
	}
	var list []any
	if k.list != nil {
		list = k.list(s, parent)
	} else {
		for _, id := range s.order {
			res := s.resources[id]
			inGroup := p.group == "" || strings.HasPrefix(id, strings.ToLower("/subscriptions/"+p.subscription+"/resourceGroups/"+p.group+"/"))
			if res.kind == p.kind() && inGroup && strings.HasPrefix(id, parent) && matchesFilter(res, query.Get("$filter")) {
				list = append(list, s.show(res, query.Has("$expand")))
			}
		}
	}
	return writePage(w, r, list)
}

// writePage writes the part of a listing that the skip token names.
func writePage(w http.ResponseWriter, r *http.Request, list []any) *failure {
	number := 1
	if text := r.URL.Query().Get("$skiptoken"); text != "" {
		var err error
		if number, err = strconv.Atoi(text); err != nil || number < 1 {
			return invalid("InvalidSkipToken", "The skip token is invalid.")
		}
	}
	from, to := min((number-1)*pageSize, len(list)), min(number*pageSize, len(list))
	page := object{"value": append([]any{}, list[from:to]...)}
	if to < len(list) {
		page["nextLink"] = nextLink(r, number+1)
	}
	write(w, http.StatusOK, page)
	return nil
}

// matchesFilter applies the only filter that machines have.
func matchesFilter(r *resource, filter string) bool {
	if filter == "" {
		return true
	}
	set := strings.Trim(strings.TrimPrefix(filter, "'virtualMachineScaleSet/id' eq "), "'")
	return strings.EqualFold(text(r.doc, "properties", "virtualMachineScaleSet", "id"), set)
}

func nextLink(r *http.Request, page int) string {
	query := url.Values{}
	maps.Copy(query, r.URL.Query())
	query.Set("$skiptoken", strconv.Itoa(page))
	return "http://" + r.Host + r.URL.Path + "?" + query.Encode()
}

// bodyOf parses the body of a request.
func bodyOf(r *http.Request) (asked object, f *failure) {
	body, err := io.ReadAll(r.Body)
	if err != nil || json.Unmarshal(body, &asked) != nil || asked == nil {
		return nil, invalid("InvalidRequestContent", refusal+".")
	}
	return asked, nil
}

// topLevel are the members of every resource, whatever its kind.
func topLevel() []string {
	return []string{
		"etag", "extendedLocation", "id", "identity", "kind", "location", "managedBy", "name", "plan", "properties", "scale", "sku", "systemData", "tags", "type",
		"zones",
		"instanceId", "resources", // of virtual machines of scale sets, as they are shown
	}
}

const refusal = "The request content was invalid and could not be deserialized"

// readResource reads what a client wants a resource to be.
func readResource(r *http.Request) (object, *failure) {
	asked, f := bodyOf(r)
	if f != nil {
		return nil, f
	}
	for name := range asked {
		if !slices.Contains(topLevel(), name) {
			return nil, invalid("InvalidRequestContent", refusal+": 'Could not find member '%s' on object of type 'ResourceDefinition'.", name)
		}
	}
	if where, given := asked["location"]; given && !strings.EqualFold(fmt.Sprint(where), Location) {
		return nil, invalid("LocationNotAvailableForResourceType", "The provided location '%v' is not available for the resource type.", where)
	}
	return asked, checkTopLevel(asked)
}

// checkTopLevel refuses values of the wrong kind in the members that every resource has.
func checkTopLevel(asked object) *failure {
	for _, name := range []string{"properties", "sku", "tags"} {
		if _, ok := asked[name].(map[string]any); !ok && asked[name] != nil {
			return invalid("InvalidRequestContent", refusal+": the value of %s is not an object.", name)
		}
	}
	sku, _ := asked["sku"].(map[string]any)
	for name := range sku {
		if !slices.Contains([]string{"name", "tier", "size", "family", "capacity", "model"}, name) {
			return invalid("InvalidRequestContent", refusal+": 'Could not find member '%s' on object of type 'ResourceSku'.", name)
		}
	}
	for name, value := range map[string]any{"sku.name": sku["name"], "etag": asked["etag"]} {
		if _, ok := value.(string); !ok && value != nil {
			return invalid("InvalidRequestContent", refusal+": the value of %s is not a string.", name)
		}
	}
	if zones, ok := asked["zones"].([]any); asked["zones"] != nil && (!ok || !areZones(zones)) {
		return invalid("InvalidRequestContent", refusal+": the value of zones is not a list of zones.")
	}
	tags, _ := asked["tags"].(map[string]any)
	for name, value := range tags {
		if _, ok := value.(string); !ok {
			return invalid("InvalidRequestContent", refusal+": the value of the tag %s is not a string.", name)
		}
	}
	return nil
}

// limitCode returns the code of a refusal by a limit.
func limitCode(l limits.Limit) string {
	switch l.What {
	case azurelimits.Name.What:
		return "InvalidResourceName"
	case azurelimits.TagName.What:
		return "InvalidTagName"
	case azurelimits.TagValue.What:
		return "InvalidTagValueLength"
	case azurelimits.RuleDescription.What:
		return "InvalidRequestFormat"
	case "routes":
		return "RouteTableLimit"
	}
	return "LimitExceeded"
}

// overLimit is the refusal of what is more than Azure takes; nil where err is nil.
func overLimit(err error) *failure {
	excess, ok := errors.AsType[*limits.Excess](err)
	if !ok {
		return nil
	}
	f := invalid(limitCode(excess.Limit), "%s.", err)
	f.cause = err
	return f
}

// sameZones compares zones, whose order says nothing.
func sameZones(a, b any) bool {
	sorted := func(v any) []string { return slices.Sorted(slices.Values(strs(object{"zones": v}, "zones"))) }
	return slices.Equal(sorted(a), sorted(b))
}

// areZones reports whether all of a list are zones of a region.
func areZones(list []any) bool {
	return !slices.ContainsFunc(list, func(z any) bool { return z != "1" && z != "2" && z != "3" })
}

// checkAddressTexts refuses unknown values of a public address's fields.
func checkAddressTexts(asked object, props any) *failure {
	if version := follow(props, "publicIPAddressVersion"); version != nil && version != "IPv4" && version != "IPv6" {
		return invalid("InvalidRequestFormat", "publicIPAddressVersion %v is none of IPv4 and IPv6.", version)
	}
	if sku := text(asked, "sku", "name"); !slices.Contains([]string{"", "Basic", "Standard", "StandardV2"}, sku) {
		return invalid("InvalidRequestFormat", "The sku %s is none of Basic, Standard and StandardV2.", sku)
	}
	return nil
}

// servePut creates or replaces a resource.
func (s *Sim) servePut(w http.ResponseWriter, r *http.Request, p armPath, k kind, found *resource) *failure {
	if k.putPart != nil {
		return s.servePart(w, r, p, k)
	}
	asked, f := readResource(r)
	if f != nil {
		return f
	}
	if match := r.Header.Get("If-Match"); match != "" && (found == nil || match != etagOf(found)) {
		return mismatch(match, found, p)
	}
	if found != nil && found.busy.isRunning() {
		return fail(http.StatusConflict, "AnotherOperationInProgress", "Another operation on this or dependent resource is in progress.")
	}
	if len(p.pairs) > 2 && s.resources[strings.ToLower(ownerOf(p.id()))] == nil {
		return fail(http.StatusNotFound, "ParentResourceNotFound", "Can not perform requested operation on nested resource. Parent resource is not found.")
	}
	if f := overLimit(azurelimits.Name.CheckText(p.pairs[len(p.pairs)-1])); f != nil && strings.EqualFold(p.namespace, "Microsoft.Network") {
		return f
	}
	if f := legal(s.shared, k.fields, asked["properties"], properties(found), "properties"); f != nil {
		return f
	}
	top := []string{"loadBalancingRules", "subnets"}
	if f := checkValues(asked["properties"], "properties", s.rules, readOnly(), top); f != nil {
		return f
	}
	status := http.StatusOK
	res := &resource{id: p.id(), kind: p.kind(), doc: object{}, created: time.Now(), power: "running"}
	if found == nil {
		status = http.StatusCreated
	} else {
		*res = *found
		res.doc = clone(found.doc)
	}
	if f := k.put(s, res, asked, found == nil); f != nil {
		return f
	}
	s.number++
	res.etag = s.number
	s.store(res)
	failing := s.failNext[p.kind()]
	delete(s.failNext, p.kind())
	s.work(w, r, res, failing)
	w.Header().Set("Etag", etagOf(res))
	write(w, status, s.show(res, false))
	return nil
}

func mismatch(match string, found *resource, p armPath) *failure {
	now := `W/""`
	if found != nil {
		now = etagOf(found)
	}
	if strings.HasPrefix(p.namespace, "Microsoft.Compute") {
		return fail(http.StatusPreconditionFailed, "PreconditionFailed", "Etag provided in if-match header %s does not match etag %s of resource.", match, now)
	}
	f := fail(http.StatusPreconditionFailed, "PreconditionFailed", "Precondition failed.")
	f.details = []any{object{"code": "PreconditionFailedEtagMismatch", "message": fmt.Sprintf(
		"Etag provided in if-match header %s does not match etag %s of resource %s in NRP data store.", match, now, p.id())}}
	return f
}

// work begins work of the cloud's on a resource, of a time that differs from one to the next.
func (s *Sim) work(w http.ResponseWriter, r *http.Request, res *resource, failing *failure) {
	s.number++
	took := s.activation * time.Duration(1+s.number%3) / 2
	o := &operation{until: time.Now().Add(took), failure: failing, compute: strings.HasPrefix(res.kind, "Microsoft.Compute")}
	res.busy = o
	id := guid(s.number)
	s.operations[id] = o
	namespace, _, _ := strings.Cut(res.kind, "/")
	w.Header().Set("Azure-AsyncOperation", "http://"+r.Host+"/subscriptions/"+Subscription+"/providers/"+namespace+"/locations/"+Location+"/operations/"+id+
		"?api-version="+r.URL.Query().Get("api-version")+"&t=639000000000000000&c=sim")
}

func (s *Sim) serveOperation(w http.ResponseWriter, r *http.Request) *failure {
	id := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	o := s.operations[id]
	switch {
	case o == nil:
		return fail(http.StatusNotFound, "OperationNotFound", "The operation '%s' was not found.", id)
	case o.isRunning():
		write(w, http.StatusOK, object{"status": "InProgress"})
	case o.failure != nil:
		answer := o.failure.body()
		answer["status"] = "Failed"
		write(w, http.StatusOK, answer)
	case o.compute:
		write(w, http.StatusOK, object{"status": "Succeeded", "name": id, "startTime": "2001-02-03T04:05:06Z", "endTime": "2001-02-03T04:05:06Z"})
	default:
		write(w, http.StatusOK, object{"status": "Succeeded"})
	}
	return nil
}

func (s *Sim) serveDelete(w http.ResponseWriter, r *http.Request, p armPath, k kind, res *resource) *failure {
	if match := r.Header.Get("If-Match"); match != "" && match != etagOf(res) {
		return mismatch(match, res, p)
	}
	if res.busy.isRunning() {
		return fail(http.StatusConflict, "AnotherOperationInProgress", "Another operation on this or dependent resource is in progress.")
	}
	if k.remove != nil {
		if f := k.remove(s, res); f != nil {
			return f
		}
	}
	s.drop(res.id)
	s.work(w, r, res, nil)
	operation := w.Header().Get("Azure-AsyncOperation")
	w.Header().Set("Location", strings.Replace(operation, "/operations/", "/operationResults/", 1))
	status := http.StatusAccepted
	if res.kind == kindInterface {
		status = http.StatusOK
	}
	w.WriteHeader(status)
	return nil
}

// store keeps a resource.
func (s *Sim) store(r *resource) {
	key := strings.ToLower(r.id)
	if s.resources[key] == nil {
		s.order = append(s.order, key)
	}
	s.resources[key] = r
}

// put stores a resource that was there before anybody called.
func (s *Sim) put(id string, asked object) *resource {
	p, _ := parsePath(id)
	r := &resource{id: id, kind: p.kind(), doc: object{}, created: time.Now(), power: "running"}
	if f := kinds[r.kind].put(s, r, asked, true); f != nil {
		panic(f.message)
	}
	s.number++
	r.etag = s.number
	s.store(r)
	return r
}

func etagOf(r *resource) string {
	if strings.HasPrefix(r.kind, "Microsoft.Compute") {
		return fmt.Sprintf("%q", strconv.Itoa(r.etag))
	}
	return `W/"` + guid(r.etag) + `"`
}

func guid(n int) string { return fmt.Sprintf("%08x-0000-4000-8000-000000000000", n) }

// show is a resource as the API shows it.
func (s *Sim) show(r *resource, view bool) object {
	k := kinds[r.kind]
	answer := clone(r.doc)
	answer["id"], answer["name"], answer["type"], answer["etag"] = r.id, r.name(), r.kind, etagOf(r)
	props, _ := answer["properties"].(object)
	if props == nil {
		props = object{}
		answer["properties"] = props
	}
	if props["provisioningState"] == nil {
		props["provisioningState"] = "Succeeded"
	}
	if r.busy.isRunning() {
		props["provisioningState"] = "Updating"
	}
	if r.busy != nil && r.busy.failure != nil && !r.busy.isRunning() {
		props["provisioningState"] = "Failed"
	}
	if k.show != nil {
		k.show(s, r, answer, view)
	}
	if strings.HasPrefix(r.kind, "Microsoft.Compute") {
		answer["id"] = strings.Replace(r.id, "/resourceGroups/"+Group+"/", "/resourceGroups/"+strings.ToUpper(Group)+"/", 1)
	}
	return answer
}
