package oci

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/providers/kit/waiting"
	"github.com/anyccm/cloud-controller-manager/registry"
)

const (
	stateCreating = "CREATING"
	stateActive   = "ACTIVE"
	stateFailed   = "FAILED"
	stateDeleting = "DELETING"
	stateDeleted  = "DELETED"
	stateUpdating = "UPDATING" // which network load balancers have alone

	workAccepted  = "ACCEPTED"
	workProgress  = "IN_PROGRESS"
	workCanceling = "CANCELING"
	workSucceeded = "SUCCEEDED"

	versionIPv4 = "IPV4"
	versionIPv6 = "IPV6"
	versionBoth = "IPV4_AND_IPV6"

	// workPage is how many of a load balancer's work requests are read, the newest first: one of them runs at most.
	workPage = "10"
)

// document is part of a load balancer as the API has it. It is written back with all that is in it, what this program does not know
// included.
type document = map[string]any

// shapeDetails are the bandwidths of a flexible shape.
type shapeDetails struct {
	Least int `json:"minimumBandwidthInMbps"`
	Most  int `json:"maximumBandwidthInMbps"`
}

// loadBalancer holds the fields of a load balancer that we use. It is never changed in place.
type loadBalancer struct {
	ID          string              `json:"id"`
	Name        string              `json:"displayName"`
	Compartment string              `json:"compartmentId"`
	State       string              `json:"lifecycleState"`
	Shape       string              `json:"shapeName"`
	Details     *shapeDetails       `json:"shapeDetails"`
	Addresses   []address           `json:"ipAddresses"`
	Groups      []string            `json:"networkSecurityGroupIds"`
	Listeners   map[string]document `json:"listeners"`
	BackendSets map[string]document `json:"backendSets"`
	Tags        map[string]string   `json:"freeformTags"`

	Defined map[string]map[string]any `json:"definedTags"`

	Certificates map[string]document `json:"certificates"`
	RuleSets     map[string]document `json:"ruleSets"`
	Subnets      []string            `json:"subnetIds"`
	IPMode       string              `json:"ipMode"`

	// Version is the version of IP of a network load balancer; the one of load balancers is IPMode.
	Version string `json:"nlbIpVersion"`
	Private bool   `json:"isPrivate"`
	// Protected load balancers cannot be deleted.
	Protected bool `json:"isDeleteProtectionEnabled"`

	// etag is known of what was read alone: listings do not show it.
	etag string
}

type address struct {
	IP       string `json:"ipAddress"`
	Public   bool   `json:"isPublic"`
	Reserved *struct {
		ID string `json:"id"`
	} `json:"reservedIp"`
}

// busy reports whether the cloud works on a load balancer, as far as its state says so.
func (lb *loadBalancer) busy() bool {
	return lb.State == stateCreating || lb.State == stateUpdating || lb.State == stateDeleting
}

// workRequest is a change that the cloud works on. Those of network load balancers have a status instead of a state, and tell nothing else.
type workRequest struct {
	ID     string `json:"id"`
	Target string `json:"loadBalancerId"`
	State  string `json:"lifecycleState"`
	Status string `json:"status"`
	workError
	Errors []workError `json:"errorDetails"`
}

// workError is why a change failed.
type workError struct {
	Message string `json:"message"`
}

func (w workRequest) running() bool {
	return w.State == workAccepted || w.State == workProgress || w.State == workCanceling
}

// vcn is the cloud network of the cluster.
type vcn struct {
	ID string `json:"id"`
}

// sharedParts are used by both kinds of load balancers.
type sharedParts struct {
	api       *api
	config    Config
	cluster   *ownership.Cluster
	adopt     registry.Adoption
	instances *instances
	vcns      *inventory.Inventory[string, vcn]
	subnets   *inventory.Inventory[string, subnet]
	book      *ruleBook
	groups    *securityGroups
	// kube reads Secrets; nil before the program leads.
	kube kubernetes.Interface

	// attempts are the retry tokens of creations whose answers are not known.
	mu       sync.Mutex
	attempts map[types.UID]attempt
	// secrets are those that a Service has named.
	secrets map[types.UID][]string
}

func newSharedParts(a *api, i *instances, adopt registry.Adoption) *sharedParts {
	c := &ownership.Cluster{}
	vcns := inventory.New(inventory.Source[string, vcn]{
		Kind: "virtual cloud network", ID: func(v vcn) string { return v.ID },
		Get: func(ctx context.Context, id string) (v vcn, err error) {
			return v, a.get(ctx, "virtual cloud network "+id, "/vcns/"+url.PathEscape(id), &v)
		},
	})
	return &sharedParts{
		api: a, config: a.config, cluster: c, adopt: adopt, instances: i, vcns: vcns, subnets: i.networks.subnets, book: newRuleBook(a, i, c),
		groups: newSecurityGroups(a, c), attempts: map[types.UID]attempt{}, secrets: map[types.UID][]string{},
	}
}

// balancers are the load balancers of one kind, and the cloud's work on them.
type balancers struct {
	*sharedParts
	kind  kind
	known *inventory.Inventory[string, *loadBalancer]
	// room is where load balancers are waited for, works where work requests are, and idle where load balancers are that work for others.
	room   *waiting.Room[string, *loadBalancer]
	works  *waiting.Room[string, workRequest]
	idle   *waiting.Room[string, bool]
	places *compartments[*loadBalancer]

	// settled are the load balancers on which the cloud has ended what this process began last.
	settledMu sync.Mutex
	settled   map[string]bool
}

// pace is how often is looked at the cloud's work.
func pace() waiting.Pace { return waiting.Pace{Least: 2 * time.Second, Most: 10 * time.Second} }

func newBalancers(parts *sharedParts, k kind) *balancers {
	b := &balancers{sharedParts: parts, kind: k, settled: map[string]bool{}}
	b.places = &compartments[*loadBalancer]{
		api: b.api, cluster: b.cluster, what: k.title + "s", path: k.path, name: k.name,
		known: func() []*loadBalancer { return b.known.PeekAll() },
	}
	b.known = inventory.New(inventory.Source[string, *loadBalancer]{
		Kind: k.title, ID: func(lb *loadBalancer) string { return lb.ID }, Get: b.get, List: b.list,
		Indexes: map[string]func(*loadBalancer) []string{indexName: func(lb *loadBalancer) []string { return []string{lb.Name} }},
	})
	b.room = waiting.New(b.known.Look, pace())
	b.works = waiting.New(waiting.Each(b.work), pace())
	b.idle = waiting.New(waiting.Each(b.isIdle), pace())
	return b
}

// at implements placed.
func (lb *loadBalancer) at() (name, compartment string) { return lb.Name, lb.Compartment }

// list reads all load balancers in the compartments of the cluster. "Not found" is never an empty list.
func (r *balancers) list(ctx context.Context) ([]*loadBalancer, int, error) {
	all, pages, err := r.places.list(ctx)
	if err != nil {
		return nil, pages, err
	}
	for _, lb := range all {
		if lb.ID == "" || lb.State == "" {
			return nil, pages, cloudapi.Unclear("listing "+r.places.what, "one of them has no ID or no state")
		}
	}
	// Those that are deleted are shown for a while.
	return slices.DeleteFunc(all, func(lb *loadBalancer) bool { return lb.State == stateDeleted }), pages, nil
}

// pathOf is the path of a load balancer.
func (r *balancers) pathOf(id string) string { return r.kind.path + "/" + url.PathEscape(id) }

// get reads a load balancer. The cloud says "not found" also of what the user may not see: it is gone only where nothing casts doubt on it.
func (r *balancers) get(ctx context.Context, id string) (*loadBalancer, error) {
	lb, what := &loadBalancer{}, "reading "+r.kind.title+" "+id
	header, err := r.api.call(ctx, what, http.MethodGet, r.pathOf(id), nil, lb, "")
	if errors.Is(err, cloudapi.ErrNotFound) {
		if doubt := r.proof(ctx, id); doubt != nil {
			return nil, cloudapi.Unclear(what, "it is not found, which does not prove that it is gone: %s", doubt)
		}
	}
	switch {
	case err != nil:
		return nil, err
	case lb.ID != id || lb.State == "":
		return nil, cloudapi.Unclear(what, "the answer is about another %s", r.kind.title)
	case lb.State == stateDeleted:
		return nil, &cloudapi.Error{Class: cloudapi.ErrNotFound, Operation: what, Message: "it is deleted"}
	}
	lb.etag = header.Get("Etag")
	return lb, nil
}

// checkProtection refuses a load balancer that is protected from deletion by now: it would outlast the rules for it.
func (r *balancers) checkProtection(ctx context.Context, id string) error {
	if !r.kind.protectable {
		return nil
	}
	lb, err := r.known.Get(ctx, id, inventory.Query{MaxAge: protectionMaxAge})
	switch {
	case errors.Is(err, cloudapi.ErrNotFound):
		return nil
	case err == nil && lb.Protected:
		r.known.Invalidate(id)
		return fmt.Errorf("%s %s stays, with the rules for it: its delete protection is enabled; disable it to have it deleted", r.kind.title, lb.Name)
	}
	return err
}

// sees is an error where the user does not see the cluster's network any more: what is not found may exist then.
func (r *sharedParts) sees(ctx context.Context, maxAge time.Duration) (err error) {
	q := inventory.Query{MaxAge: maxAge}
	switch {
	case r.api.config.VCN != "":
		_, err = r.vcns.Get(ctx, r.api.config.VCN, q)
	case r.api.config.Subnet1 != "":
		_, err = r.subnets.Get(ctx, r.api.config.Subnet1, q)
	default:
		return errors.New("neither vcn nor loadBalancer.subnet1 is in the cloud config, by which it could be told whether the user sees anything")
	}
	if err != nil {
		return cloudapi.NotAbsence(err)
	}
	return nil
}

// proof is an error where nobody knows whether the user may see a load balancer still: policies name their kind apart from that of
// networks. A listing that is answered proves it, though it may be empty; but policies may let a user list what they do not let be read,
// and a compartment may not be readable any more.
func (r *balancers) proof(ctx context.Context, id string) error {
	if err := r.sees(ctx, proofMaxAge); err != nil {
		return err
	}
	all, _, err := r.places.list(ctx)
	if err != nil {
		return err
	}
	for _, lb := range all {
		if lb.ID == id && lb.State != stateDeleting && lb.State != stateDeleted {
			return errors.New("the listing shows it still; check the policies of the user")
		}
	}
	if before, known := r.known.Peek(id); known {
		if why, refused := r.places.refusalOf(before.Compartment); refused {
			return why.err
		}
	}
	return nil
}

// work reads a work request.
func (r *balancers) work(ctx context.Context, id string) (w workRequest, err error) {
	if err := r.api.get(ctx, "work request "+id, r.kind.workPath+"/"+url.PathEscape(id), &w); err != nil {
		return w, err
	}
	if w.State = cmp.Or(w.State, w.Status); w.ID != id || w.State == "" {
		return w, cloudapi.Unclear("reading work request "+id, "the answer is about another one")
	}
	return w, nil
}

// finish waits for a work request. One that is forgotten is judged by the load balancer itself, which is read in any case.
func (r *balancers) finish(ctx context.Context, q *services.Request, id, name string) (workRequest, error) {
	waiting, cancel := context.WithTimeout(ctx, workPatience)
	defer cancel()
	title := r.kind.title + " " + name
	w, err := r.works.Until(waiting, id, "the cloud's work on "+title, func(w workRequest) bool { return !w.running() })
	switch {
	case errors.Is(err, cloudapi.ErrNotFound):
		return workRequest{}, nil
	case err != nil:
		return w, retryLater(err, name)
	case w.State == workSucceeded:
		return w, nil
	}
	err = &cloudapi.Error{ // the cloud said no, if late
		Class: cloudapi.ErrInvalid, Operation: "changing " + title, Refused: true, Message: fmt.Sprintf("the work request %s failed: %s", id, r.why(ctx, w)),
	}
	q.Report(services.Warning(eventRefused, "%s: %v", title, err))
	return w, err
}

// why returns the error of a failed work request, as far as it is known.
func (r *balancers) why(ctx context.Context, w workRequest) string {
	found := append(page[workError]{w.workError}, w.Errors...)
	if r.kind.errorsApart {
		if err := r.api.get(ctx, "errors of work request "+w.ID, r.kind.workPath+"/"+url.PathEscape(w.ID)+"/errors", &found); err != nil {
			return "its errors cannot be read: " + err.Error()
		}
	}
	var all []string
	for _, e := range found {
		if e.Message != "" && !slices.Contains(all, e.Message) {
			all = append(all, e.Message)
		}
	}
	if len(all) == 0 {
		return "the cloud does not say why"
	}
	return strings.Join(all, "; ")
}

// readUntilIdle waits until the state of a load balancer says that the cloud works on it no longer, and returns what is there then.
func (r *balancers) readUntilIdle(ctx context.Context, lb *loadBalancer) (*loadBalancer, error) {
	r.known.Invalidate(lb.ID)
	lb, err := r.known.Get(ctx, lb.ID, inventory.Query{})
	if err != nil || !lb.busy() {
		return lb, err
	}
	return r.waitUntilIdle(ctx, lb)
}

// waitUntilIdle is readUntilIdle for a load balancer on which it is known to work.
func (r *balancers) waitUntilIdle(ctx context.Context, lb *loadBalancer) (*loadBalancer, error) {
	waiting, cancel := context.WithTimeout(ctx, workPatience)
	defer cancel()
	after, err := r.room.Until(waiting, lb.ID, r.kind.title+" "+lb.Name+": "+lb.State, func(lb *loadBalancer) bool { return !lb.busy() })
	return after, retryLater(err, lb.Name)
}

// isIdle reports whether the cloud works on a load balancer no longer.
func (r *balancers) isIdle(ctx context.Context, id string) (bool, error) {
	var newest []workRequest
	path := r.pathOf(id) + "/workRequests?limit=" + workPage
	if err := r.api.get(ctx, "work requests of load balancer "+id, path, &newest); err != nil {
		return false, err
	}
	for _, w := range newest {
		if w.running() {
			return false, nil
		}
	}
	return true, nil
}

// start asks for a change, and returns the work request that makes it.
func (r *balancers) start(ctx context.Context, w write) (string, error) {
	more := http.Header{}
	if w.token != "" {
		more.Set(tokenHeader, w.token)
	}
	if w.etag != "" {
		more.Set(ifMatch, w.etag)
	}
	header, err := r.api.send(ctx, w.what, w.method, w.path, w.in, w.out, more)
	if err != nil {
		return "", err
	}
	id := header.Get("Opc-Work-Request-Id")
	if id == "" {
		return "", cloudapi.Unclear(w.what, "the answer names no work request")
	}
	return id, nil
}

// create asks for a load balancer, and returns the work request, and the ID if the answer names it.
func (r *balancers) create(ctx context.Context, name string, in document, token string) (id, work string, err error) {
	ask := write{what: "creating " + r.kind.title + " " + name, method: http.MethodPost, path: r.kind.path, in: in, token: token}
	var made struct {
		ID string `json:"id"`
	}
	if r.kind.showsCreated {
		ask.out = &made
	}
	if work, err = r.start(ctx, ask); err == nil && made.ID == "" && r.kind.showsCreated {
		err = cloudapi.Unclear(ask.what, "the answer names no %s", r.kind.title)
	}
	return made.ID, work, err
}

// write is one change of a load balancer.
type write struct {
	what, method, path string
	in, out            any
	token              string
	// etag is that of the load balancer which the write was made for.
	etag string
	// have is the listener, or the backend set, that is to be written back with changes; nil where it is another write.
	listener, set string
	have          document
}

// outdated reports whether what is to be written back is not what a load balancer has now.
func (w write) outdated(lb *loadBalancer) bool {
	now := lb.Listeners[w.listener]
	if w.set != "" {
		now = lb.BackendSets[w.set]
	}
	return w.have != nil && !sameDocument(now, w.have)
}

// repeatable reports whether a request may be sent twice: a retry token makes that safe. A change that was begun must not be asked
// for again, because the cloud refuses a second one.
func repeatable(r *http.Request) bool {
	return r.Method == http.MethodGet || r.Header.Get(tokenHeader) != "" || strings.HasSuffix(r.URL.Path, byAddressPath)
}

// UnmarshalJSON implements json.Unmarshaler: maps that are absent are empty, and the one subnet of a network load balancer is a list.
func (lb *loadBalancer) UnmarshalJSON(data []byte) error {
	type plain loadBalancer
	shown := struct {
		*plain
		Subnet string `json:"subnetId"`
	}{plain: (*plain)(lb)}
	if err := json.Unmarshal(data, &shown); err != nil {
		return err
	}
	if shown.Subnet != "" {
		lb.Subnets = []string{shown.Subnet}
	}
	lb.Version = cmp.Or(lb.Version, versionIPv4)
	for _, m := range []*map[string]document{&lb.Listeners, &lb.BackendSets, &lb.Certificates, &lb.RuleSets} {
		if *m == nil {
			*m = map[string]document{}
		}
	}
	return nil
}

// subnet is the one of a network load balancer.
func (lb *loadBalancer) subnet() string {
	if len(lb.Subnets) == 0 {
		return ""
	}
	return lb.Subnets[0]
}
