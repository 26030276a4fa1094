package oci

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/waiting"
)

// This file has the service of network load balancers, which is another one than that of load balancers, with a host of its own.

const (
	networkVersion = "/20200501"
	stateUpdating  = "UPDATING"
	workCanceling  = "CANCELING"
	workSucceeded  = "SUCCEEDED"
	versionIPv4    = "IPV4"
	versionIPv6    = "IPV6"
	versionBoth    = "IPV4_AND_IPV6"
	networkPaths   = "/networkLoadBalancers"
	balancerPaths  = "/loadBalancers"
)

// isNetwork reports whether a path is one of that service.
func isNetwork(path string) bool {
	return strings.HasPrefix(path, networkPaths) || strings.HasPrefix(path, "/workRequests")
}

// base is what a path of the API begins with.
func (c *Config) base(region, path string) string {
	if !isNetwork(path) || c.Endpoint != "" || strings.Contains(region, ".") {
		service := "iaas"
		if isNetwork(path) {
			service = "network-load-balancer-api"
		}
		return c.at(region, service) + versionOf(path)
	}
	return "https://network-load-balancer-api." + region + ".oci." + c.Domain + versionOf(path)
}

// page is a page of a listing: the objects, or a document that has them as items.
type page[T any] []T

// UnmarshalJSON implements json.Unmarshaler.
func (p *page[T]) UnmarshalJSON(data []byte) error {
	if !bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
		return json.Unmarshal(data, (*[]T)(p))
	}
	var of struct {
		Items *[]T `json:"items"`
	}
	if err := json.Unmarshal(data, &of); err != nil {
		return err
	}
	if of.Items == nil {
		return errors.New("it has no items")
	}
	*p = *of.Items
	return nil
}

// networkWork is a change that the cloud works on.
type networkWork struct {
	ID     string `json:"id"`
	Status string `json:"status"`
}

func (w networkWork) running() bool {
	return w.Status == workAccepted || w.Status == workProgress || w.Status == workCanceling
}

// networkBalancers are the network load balancers of the compartment, and the cloud's work on them.
type networkBalancers struct {
	api   *api
	known *inventory.Inventory[string, *loadBalancer]
	room  *waiting.Room[string, *loadBalancer]
	works *waiting.Room[string, networkWork]
	// sees is an error where the user does not see the cluster's network any more.
	sees   func(context.Context) error
	places *compartments[*loadBalancer]
}

func newNetworkBalancers(a *api, sees func(context.Context) error, c *ownership.Cluster) *networkBalancers {
	b := &networkBalancers{api: a, sees: sees}
	b.places = &compartments[*loadBalancer]{
		api: a, cluster: c, what: "network load balancers", path: networkPaths, known: func() []*loadBalancer { return b.known.PeekAll() },
		name: networkName,
	}
	b.known = inventory.New(inventory.Source[string, *loadBalancer]{
		Kind: "network load balancer", ID: func(lb *loadBalancer) string { return lb.ID }, Get: b.get,
		List:    func(ctx context.Context) ([]*loadBalancer, int, error) { return living(ctx, b.places) },
		Indexes: map[string]func(*loadBalancer) []string{indexName: func(lb *loadBalancer) []string { return []string{lb.Name} }},
	})
	b.room = waiting.New(b.known.Look, pace())
	b.works = waiting.New(waiting.Each(b.work), pace())
	return b
}

func (b *networkBalancers) get(ctx context.Context, id string) (*loadBalancer, error) {
	lb := &loadBalancer{}
	err := b.api.get(ctx, "network load balancer "+id, networkPaths+"/"+url.PathEscape(id), lb)
	if err = judgeRead(ctx, "network load balancer", id, lb, err, b.proof); err != nil {
		return nil, err
	}
	return lb, nil
}

// proof is an error where nobody knows whether the user may see a network load balancer still: policies name their kind apart from that of
// networks. A listing that is answered proves it, though it may be empty.
func (b *networkBalancers) proof(ctx context.Context, id string) error {
	if err := b.sees(ctx); err != nil {
		return err
	}
	return proof(ctx, b.places, b.known, id, func(lb *loadBalancer) bool { return lb.State == stateDeleting || lb.State == stateDeleted })
}

// work reads a work request.
func (b *networkBalancers) work(ctx context.Context, id string) (w networkWork, err error) {
	if err := b.api.get(ctx, "work request "+id, "/workRequests/"+url.PathEscape(id), &w); err != nil {
		return w, err
	}
	if w.ID != id || w.Status == "" {
		return w, cloudapi.Unclear("reading work request "+id, "the answer is about another one")
	}
	return w, nil
}

// why is what a work request failed for, as far as it is known.
func (b *networkBalancers) why(ctx context.Context, id string) string {
	var said page[struct {
		Message string `json:"message"`
	}]
	if err := b.api.get(ctx, "errors of work request "+id, "/workRequests/"+url.PathEscape(id)+"/errors", &said); err != nil {
		return "its errors cannot be read: " + err.Error()
	}
	var all []string
	for _, e := range said {
		if e.Message != "" && !slices.Contains(all, e.Message) {
			all = append(all, e.Message)
		}
	}
	if len(all) == 0 {
		return "the cloud does not say why"
	}
	return strings.Join(all, "; ")
}

// create asks for a network load balancer, and returns its ID and that of the work request.
func (b *networkBalancers) create(ctx context.Context, name string, in document, token string) (id, work string, err error) {
	what := "creating network load balancer " + name
	var made struct {
		ID string `json:"id"`
	}
	header, err := b.api.call(ctx, what, http.MethodPost, networkPaths, in, &made, token)
	if err != nil {
		return "", "", err
	}
	work = header.Get("Opc-Work-Request-Id")
	if made.ID == "" || work == "" {
		return "", "", cloudapi.Unclear(what, "the answer names no network load balancer, or no work request")
	}
	return made.ID, work, nil
}
