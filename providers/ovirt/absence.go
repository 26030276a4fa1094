package ovirt

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
)

// seen is a virtual machine in a complete listing, and the session that has shown it.
type seen struct {
	vm
	by *token
}

// instance reads one virtual machine. It is cloudapi.ErrNotFound only where the engine has proved that it has none with this ID.
func (a *api) instance(ctx context.Context, id string) (found vm, err error) {
	var by *token
	what := "reading virtual machine " + id
	err = a.keeper.Do(ctx, func(s *token) error {
		found, by = vm{}, s
		return a.get(ctx, s, what, "/vms/"+id+"?follow=nics", &found)
	})
	if errors.Is(err, cloudapi.ErrNotFound) {
		return vm{}, a.prove(ctx, id, by, time.Now())
	}
	if found.ID = strings.ToLower(found.ID); err == nil && found.ID != id {
		err = cloudapi.Unclear(what, "the answer is about another virtual machine")
	}
	if err == nil {
		a.noteHosts(found)
	}
	return found, err
}

// prove returns cloudapi.ErrNotFound where a virtual machine that the engine does not find is gone. "Not found" is also what it says of
// one that the user may not see, and what a wrong address says of everything. So there must be a complete listing, begun afterwards and
// read with the same token as the entry of the API, that lacks it and has something to show that the user would see it: a host, which is
// shown to administrators alone, or another node of this cluster.
func (a *api) prove(ctx context.Context, id string, by *token, asked time.Time) error {
	what := "looking for virtual machine " + id
	all, err := a.everything.All(ctx, inventory.Query{MaxAge: time.Since(asked)})
	if err != nil {
		return cloudapi.Unclear(what, "it is not found, which does not prove that it is gone: %s", err)
	}
	witness := false
	for _, v := range all {
		switch {
		case v.by != by:
			return cloudapi.Unclear(what, "the session has changed meanwhile; it is tried again")
		case v.ID == id:
			return cloudapi.Unclear(what, "it is not found, and yet it is listed")
		}
		witness = witness || v.Host.id() != "" || slices.Contains(a.members(), v.ID)
	}
	if !witness {
		return cloudapi.Unclear(what, "cannot tell missing from forbidden: the user sees neither a host nor any other node of this cluster; give it the role "+
			"ReadOnlyAdmin")
	}
	return &cloudapi.Error{Class: cloudapi.ErrNotFound, Operation: what, Message: "the engine has none with this ID"}
}

// listEverything lists all virtual machines that the user may see, and shows that the address is that of an engine.
func (a *api) listEverything(ctx context.Context) (all []seen, calls int, err error) {
	err = a.keeper.Do(ctx, func(s *token) error {
		list, err := a.vms(ctx, s, "listing all virtual machines", "", false)
		if err != nil {
			return err
		}
		all = make([]seen, len(list))
		for i, v := range list {
			all[i] = seen{v, s}
		}
		return a.checkVersion(ctx, s)
	})
	return all, 2, err
}

// members are the virtual machines of the cluster's nodes, as far as these name them.
func membersOf(nodes []*v1.Node) []string {
	var ids []string
	for _, n := range nodes {
		if id, err := parseProviderID(n.Spec.ProviderID); err == nil {
			ids = append(ids, id)
		}
	}
	return ids
}
