package ovirt

import (
	"context"
	"errors"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/restapi"
)

// listedVM is a virtual machine in a complete listing, with the session of the listing.
type listedVM struct {
	vm
	by restapi.Tokens
}

// instance reads one virtual machine. It is cloudapi.ErrNotFound only if the engine has proved that it has none with this ID.
func (a *api) instance(ctx context.Context, id string) (found vm, err error) {
	var by restapi.Tokens
	what := "reading virtual machine " + id
	err = a.keeper.Do(ctx, func(s restapi.Tokens) error {
		found, by = vm{}, s
		return a.get(ctx, s, what, "/vms/"+id+"?follow=nics", &found)
	})
	if errors.Is(err, cloudapi.ErrNotFound) {
		return vm{}, a.everything.Prove(ctx, id, func(all []listedVM) error { return a.checkAbsence(by, all) })
	}
	if found.ID = strings.ToLower(found.ID); err == nil && found.ID != id {
		err = cloudapi.Unclear(what, "the answer is about another virtual machine")
	}
	if err == nil {
		a.noteHosts(found)
	}
	return found, err
}

// checkAbsence says why a listing that lacks a virtual machine does not prove it gone. The engine also reports "not found" without
// permission, and a wrong address does for everything. So the listing must be read with the same token as the API's entry, and contain
// something that proves the user's access: a host, which only administrators see, or another node of this cluster.
func (a *api) checkAbsence(by restapi.Tokens, all []listedVM) error {
	members := a.members()
	switch {
	case slices.ContainsFunc(all, func(v listedVM) bool { return v.by != by }):
		return errors.New("the session has changed meanwhile; it is tried again")
	case !slices.ContainsFunc(all, func(v listedVM) bool { return v.Host.id() != "" || slices.Contains(members, v.ID) }):
		return errors.New("cannot tell missing from forbidden: the user sees neither a host nor any other node of this cluster; give it the role " +
			"ReadOnlyAdmin")
	}
	return nil
}

// listEverything lists all virtual machines visible to the user, and checks that the address is that of an engine.
func (a *api) listEverything(ctx context.Context) (all []listedVM, calls int, err error) {
	err = a.keeper.Do(ctx, func(s restapi.Tokens) error {
		list, err := a.vms(ctx, s, "listing all virtual machines", "", "")
		if err != nil {
			return err
		}
		all = make([]listedVM, len(list))
		for i, v := range list {
			all[i] = listedVM{v, s}
		}
		return a.checkVersion(ctx, s)
	})
	return all, 2, err
}

// membersOf returns the virtual machines that the cluster's nodes name.
func membersOf(nodes []*v1.Node) []string {
	var ids []string
	for _, n := range nodes {
		if id, err := parseProviderID(n.Spec.ProviderID); err == nil {
			ids = append(ids, id)
		}
	}
	return ids
}
