package oci

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/waiting"
)

const (
	stateCreating = "CREATING"
	stateActive   = "ACTIVE"
	stateFailed   = "FAILED"
	stateDeleting = "DELETING"
	stateDeleted  = "DELETED"

	workAccepted = "ACCEPTED"
	workProgress = "IN_PROGRESS"

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

// loadBalancer is what is used of a load balancer. It is never changed in place.
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

	Certificates map[string]document `json:"certificates"`
	RuleSets     map[string]document `json:"ruleSets"`
	Subnets      []string            `json:"subnetIds"`
	IPMode       string              `json:"ipMode"`

	// Version is the version of IP of a network load balancer; the one of load balancers is IPMode.
	Version string `json:"nlbIpVersion"`
	Private bool   `json:"isPrivate"`

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

// workRequest is a change that the cloud works on.
type workRequest struct {
	ID      string `json:"id"`
	Target  string `json:"loadBalancerId"`
	State   string `json:"lifecycleState"`
	Message string `json:"message"`
	Errors  []struct {
		Message string `json:"message"`
	} `json:"errorDetails"`
}

func (w workRequest) running() bool { return w.State == workAccepted || w.State == workProgress }

// why is what a work request failed for.
func (w workRequest) why() string {
	why := w.Message
	for _, e := range w.Errors {
		if e.Message != "" && e.Message != why {
			why += "; " + e.Message
		}
	}
	return why
}

// vcn is the cloud network of the cluster.
type vcn struct {
	ID string `json:"id"`
}

// balancers are the load balancers of the compartment, and the cloud's work on them.
type balancers struct {
	api   *api
	known *inventory.Inventory[string, *loadBalancer]
	vcns  *inventory.Inventory[string, vcn]
	// room is where load balancers are waited for, works where work requests are, and idle where load balancers are that work for others.
	room  *waiting.Room[string, *loadBalancer]
	works *waiting.Room[string, workRequest]
	idle  *waiting.Room[string, bool]

	subnets *inventory.Inventory[string, subnet]
	cluster *ownership.Cluster
	places  *compartments[*loadBalancer]
}

// pace is how often is looked at the cloud's work.
func pace() waiting.Pace { return waiting.Pace{Least: 2 * time.Second, Most: 10 * time.Second} }

func newBalancers(a *api, subnets *inventory.Inventory[string, subnet], c *ownership.Cluster) *balancers {
	b := &balancers{api: a, subnets: subnets, cluster: c}
	b.places = &compartments[*loadBalancer]{
		api: a, cluster: c, what: "load balancers", path: balancerPaths, known: func() []*loadBalancer { return b.known.PeekAll() },
		name: func(s *v1.Service) string { return ownName(a.config.Prefix, s) },
	}
	b.known = inventory.New(inventory.Source[string, *loadBalancer]{
		Kind: "load balancer", ID: func(lb *loadBalancer) string { return lb.ID }, Get: b.get,
		List:    func(ctx context.Context) ([]*loadBalancer, int, error) { return living(ctx, b.places) },
		Indexes: map[string]func(*loadBalancer) []string{indexName: func(lb *loadBalancer) []string { return []string{lb.Name} }},
	})
	b.vcns = inventory.New(inventory.Source[string, vcn]{
		Kind: "virtual cloud network", ID: func(v vcn) string { return v.ID },
		Get: func(ctx context.Context, id string) (v vcn, err error) {
			return v, a.get(ctx, "virtual cloud network "+id, "/vcns/"+url.PathEscape(id), &v)
		},
	})
	b.room = waiting.New(b.known.Look, pace())
	b.works = waiting.New(waiting.Each(b.work), pace())
	b.idle = waiting.New(waiting.Each(b.isIdle), pace())
	return b
}

// at implements placed.
func (lb *loadBalancer) at() (name, compartment string) { return lb.Name, lb.Compartment }

// living reads all load balancers of a kind in the compartments of the cluster. "Not found" is never an empty list.
func living(ctx context.Context, places *compartments[*loadBalancer]) ([]*loadBalancer, int, error) {
	all, pages, err := places.list(ctx)
	if err != nil {
		return nil, pages, err
	}
	for _, lb := range all {
		if lb.ID == "" || lb.State == "" {
			return nil, pages, cloudapi.Unclear("listing "+places.what, "one of them has no ID or no state")
		}
	}
	// Those that are deleted are shown for a while.
	return slices.DeleteFunc(all, func(lb *loadBalancer) bool { return lb.State == stateDeleted }), pages, nil
}

// judgeRead judges the answer to a read of the load balancer with an ID. The cloud says "not found" also of what the user may not see: it
// is gone only where doubt finds no reason to doubt it.
func judgeRead(ctx context.Context, kind, id string, lb *loadBalancer, err error, doubt func(ctx context.Context, id string) error) error {
	what := "reading " + kind + " " + id
	if errors.Is(err, cloudapi.ErrNotFound) {
		if why := doubt(ctx, id); why != nil {
			return cloudapi.Unclear(what, "it is not found, which does not prove that it is gone: %s", why)
		}
	}
	if err != nil {
		return err
	}
	switch {
	case lb.ID != id || lb.State == "":
		return cloudapi.Unclear(what, "the answer is about another %s", kind)
	case lb.State == stateDeleted:
		return &cloudapi.Error{Class: cloudapi.ErrNotFound, Operation: what, Message: "it is deleted"}
	}
	return nil
}

func (b *balancers) get(ctx context.Context, id string) (*loadBalancer, error) {
	lb := &loadBalancer{}
	header, err := b.api.call(ctx, "reading load balancer "+id, http.MethodGet, "/loadBalancers/"+url.PathEscape(id), nil, lb, "")
	if err = judgeRead(ctx, "load balancer", id, lb, err, b.proof); err != nil {
		return nil, err
	}
	lb.etag = header.Get("Etag")
	return lb, nil
}

// sees is an error where the user does not see the cluster's network any more: what is not found may exist then.
func (b *balancers) sees(ctx context.Context, maxAge time.Duration) (err error) {
	q := inventory.Query{MaxAge: maxAge}
	switch {
	case b.api.config.VCN != "":
		_, err = b.vcns.Get(ctx, b.api.config.VCN, q)
	case b.api.config.Subnet1 != "":
		_, err = b.subnets.Get(ctx, b.api.config.Subnet1, q)
	default:
		return errors.New("neither vcn nor loadBalancer.subnet1 is in the cloud config, by which it could be told whether the user sees anything")
	}
	if err != nil {
		return cloudapi.NotAbsence(err)
	}
	return nil
}

// proof is an error where nobody knows whether the user may see a load balancer still: policies name their kind apart from that of
// networks.
func (b *balancers) proof(ctx context.Context, id string) error {
	if err := b.sees(ctx, proofMaxAge); err != nil {
		return err
	}
	return proof(ctx, b.places, b.known, id, func(lb *loadBalancer) bool { return lb.State == stateDeleting || lb.State == stateDeleted })
}

// work reads a work request.
func (b *balancers) work(ctx context.Context, id string) (w workRequest, err error) {
	if err := b.api.get(ctx, "work request "+id, "/loadBalancerWorkRequests/"+url.PathEscape(id), &w); err != nil {
		return w, err
	}
	if w.ID != id || w.State == "" {
		return w, cloudapi.Unclear("reading work request "+id, "the answer is about another one")
	}
	return w, nil
}

// isIdle reports whether the cloud works on a load balancer no longer.
func (b *balancers) isIdle(ctx context.Context, id string) (bool, error) {
	var newest []workRequest
	path := "/loadBalancers/" + url.PathEscape(id) + "/workRequests?limit=" + workPage
	if err := b.api.get(ctx, "work requests of load balancer "+id, path, &newest); err != nil {
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
func (b *balancers) start(ctx context.Context, r write) (string, error) {
	more := http.Header{}
	if r.token != "" {
		more.Set(tokenHeader, r.token)
	}
	if r.etag != "" {
		more.Set(ifMatch, r.etag)
	}
	header, err := b.api.send(ctx, r.what, r.method, r.path, r.in, nil, more)
	if err != nil {
		return "", err
	}
	id := header.Get("Opc-Work-Request-Id")
	if id == "" {
		return "", cloudapi.Unclear(r.what, "the answer names no work request")
	}
	return id, nil
}

// write is one change of a load balancer.
type write struct {
	what, method, path string
	in                 any
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
