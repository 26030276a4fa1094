package ovirt

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodes"
	"github.com/anyccm/cloud-controller-manager/providers/kit/restapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/session"
	"github.com/anyccm/cloud-controller-manager/registry"
)

// limits bound the calls to the engine, which publishes none: more than needed, and too few to be a burden.
var limits = []cloudapi.Limit{{PerSecond: 20, Burst: 100}}

// api is the part of the engine's API that we use: a login, and reads.
type api struct {
	http     *restapi.Client
	config   Config
	endpoint endpoint
	keeper   *session.Keeper[credentials, restapi.Tokens]

	// members are the virtual machines of the cluster's nodes.
	members func() []string
	// everything lists all virtual machines, to prove that one is absent and not merely hidden by missing permissions.
	everything *inventory.Inventory[string, listedVM]
	places     places
	// seesHosts is set if the user sees hosts, as only administrators do.
	seesHosts atomic.Bool
}

func newAPI(c Config, in registry.Inputs) (*api, error) {
	client, err := restapi.New(restapi.Config{
		Config: cloudapi.Config{
			Provider: Name, UserAgent: "anyccm/" + in.Version, Limits: limits, Operation: restapi.Operations(tokenPath, logoutPath, apiPath,
				"/api/vms", "/api/vms/{id}", "/api/clusters", "/api/datacenters", "/api/instancetypes"),
		},
		Trust: c.trust(), Header: http.Header{"Version": {"4"}}, Server: "the engine", CheckAddress: checkAddress, Refusal: classifyError,
		CheckCredentials: "username and password (" + envUsername + ", " + envPassword + ")",
		Untrusted: "set cafile (" + envCAFile + ", or " + envCABundle + ") to the engine's authority, which is /etc/pki/ovirt-engine/ca.pem there; " +
			"insecure=true switches the check off",
	}, in.Dial)
	if err != nil {
		return nil, err
	}
	a := &api{http: client, config: c, endpoint: c.endpoint}
	a.keeper = &session.Keeper[credentials, restapi.Tokens]{Credentials: credentialsOf(c, in), Login: a.login}
	a.everything = inventory.New(inventory.Source[string, listedVM]{
		Kind: "virtual machine", ID: func(v listedVM) string { return v.ID }, List: a.listEverything,
	})
	a.places = newPlaces(a)
	return a, nil
}

// fault is the engine's answer to a call that failed.
type fault struct {
	Reason string `json:"reason"`
	Detail string `json:"detail"`
}

// errDenied marks objects that the user may not see according to the engine.
var errDenied = errors.New("the user lacks the permission")

// noPermission is part of a fault that has the status of a bad request.
const noPermission = "insufficient permissions"

// classifyError recognizes the engine's errors, which may have the status of success, or no content if nothing is found.
func classifyError(a restapi.Answer, e *cloudapi.Error) bool {
	var said fault
	if a.JSON {
		_ = json.Unmarshal(a.Body, &said) // other content leaves it empty
	}
	switch e.Message = restapi.Text(said.Reason, said.Detail); {
	case !a.JSON && a.Status == http.StatusNotFound:
		e.Message = "the engine knows nothing there, or nothing that the user may see"
	case said == (fault{}):
		return false
	case strings.Contains(said.Detail, noPermission), a.Status == http.StatusForbidden:
		e.Class, e.Cause = cloudapi.ErrUnauthorized, errDenied
	}
	return true
}

// get reads one document in a session. path is relative to the API's entry.
func (a *api) get(ctx context.Context, s restapi.Tokens, what, path string, out any) error {
	return a.http.Get(ctx, what, a.endpoint.api+path, s.Access, out)
}

// vms reads virtual machines by a search; "" finds all. follow names the collections of each that come along.
func (a *api) vms(ctx context.Context, s restapi.Tokens, what, search, follow string) ([]vm, error) {
	query := url.Values{}
	if search != "" {
		query.Set("search", search)
	}
	if follow != "" {
		query.Set("follow", follow)
	}
	var list listing
	path := "/vms"
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	// A listing that is not found means that the address is wrong, and says nothing about virtual machines.
	if err := cloudapi.NotAbsence(a.get(ctx, s, what, path, &list)); err != nil {
		return nil, err
	}
	for i := range list {
		list[i].ID = strings.ToLower(list[i].ID)
	}
	a.noteHosts(list...)
	return list, nil
}

// noteHosts records whether the user sees the hosts of machines; running ones have a host.
func (a *api) noteHosts(list ...vm) {
	switch {
	case slices.ContainsFunc(list, func(v vm) bool { return v.Host.id() != "" }):
		a.seesHosts.Store(true)
	case slices.ContainsFunc(list, func(v vm) bool { return v.Status == "up" }):
		a.seesHosts.Store(false)
	}
}

// instances lists the virtual machines of the filter by one call: with pages, some may be missed if the set changes.
func (a *api) instances(ctx context.Context) (all []vm, calls int, err error) {
	err = a.keeper.Do(ctx, func(s restapi.Tokens) error {
		all, err = a.vms(ctx, s, "listing virtual machines", a.config.Filter, "nics")
		assignNames(all)
		return err
	})
	return all, 1, err
}

// tags reads the tags of virtual machines: by one listing, and those outside of the filter alone. They are no part of the usual listing,
// because not every user may see tags.
func (a *api) tags(ctx context.Context, ids []string) (map[string]map[string]string, error) {
	all := map[string]map[string]string{}
	err := a.keeper.Do(ctx, func(s restapi.Tokens) error {
		list, err := a.vms(ctx, s, "reading the tags of virtual machines", a.config.Filter, "tags")
		if err != nil {
			return err
		}
		for _, v := range list {
			all[v.ID] = v.tags()
		}
		if a.config.Filter == "" {
			return nil
		}
		return a.tagsOutside(ctx, s, ids, all)
	})
	return all, err
}

// tagsOutside adds the tags of virtual machines that a listing lacks.
func (a *api) tagsOutside(ctx context.Context, s restapi.Tokens, ids []string, all map[string]map[string]string) error {
	for _, id := range ids {
		if all[id] != nil {
			continue
		}
		var one vm
		err := a.get(ctx, s, "reading the tags of virtual machine "+id, "/vms/"+id+"?follow=tags", &one)
		switch {
		case errors.Is(err, cloudapi.ErrNotFound): // it is gone
		case err != nil:
			return err
		default:
			all[id] = one.tags()
		}
	}
	return nil
}

func (v vm) tags() map[string]string {
	tags := map[string]string{}
	for _, t := range v.Tags.Tag {
		tags[t.Name] = nodes.BareTag
	}
	return tags
}
