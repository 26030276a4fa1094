package vsphere

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
)

// This file reads one instance, or proves that no vCenter has it.

// privilegeRead is the privilege without which vCenter leaves objects out of every answer, as if they did not exist.
const privilegeRead = "System.Read"

// readInstance reads one instance. It is cloudapi.ErrNotFound only if every vCenter has proved that it has none.
func (a *api) readInstance(ctx context.Context, id string) (instance, error) {
	read := func(ctx context.Context, v *vcenter) answer { return v.findMachines(ctx, id) }
	var problems []error
	found := instance{ID: id}
	known, others := a.splitByKnown(id)
	for _, some := range [][]*vcenter{known, others} { // the others are asked only if it is no longer there
		for _, got := range askAll(ctx, some, read) {
			found.Machines = append(found.Machines, got.machines...)
			if got.err != nil {
				problems = append(problems, got.err)
			}
		}
		if len(found.Machines) > 0 {
			break
		}
	}
	if all := groupByUUID(found.Machines); len(all) == 1 {
		return all[0], nil
	}
	if len(problems) > 0 {
		return instance{}, cloudapi.NotAbsence(errors.Join(problems...))
	}
	if a.keepNodes {
		return instance{}, cloudapi.Unclear("reading virtual machine "+id, "no vCenter has it, and %s is set", envSkipDeletion)
	}
	return instance{}, &cloudapi.Error{Class: cloudapi.ErrNotFound, Operation: "reading virtual machine " + id, Message: "no vCenter has it"}
}

// splitByKnown splits the vCenters into those that have shown an instance, and the others.
func (a *api) splitByKnown(id string) (known, others []*vcenter) {
	for _, v := range a.vcenters {
		if len(v.known.machinesOf(id)) > 0 {
			known = append(known, v)
		} else {
			others = append(others, v)
		}
	}
	return known, others
}

// findMachines finds the virtual machines with an ID in one vCenter: remembered ones, by a search, or else in a complete listing. No
// machines and no error prove that there is none.
func (v *vcenter) findMachines(ctx context.Context, id string) answer {
	var got answer
	asked := time.Now()
	got.err = v.do(ctx, "reading virtual machine "+id, func(ctx context.Context, s *session) error {
		got = answer{}
		for _, known := range v.known.machinesOf(id) {
			m, err := v.reread(ctx, s, known)
			switch {
			case err != nil && !errors.Is(err, cloudapi.ErrNotFound):
				return err
			case err == nil && canonicalUUID(m.UUID) == id:
				got.machines = append(got.machines, m)
			}
		}
		if len(got.machines) > 0 {
			return nil
		}
		refs, err := s.findByUUID(ctx, v.api.originalUUID(id))
		if err != nil || len(refs) == 0 {
			return err
		}
		found, err := s.retrieve(ctx, v.config.Key, refs)
		if err != nil {
			return err
		}
		found, _ = v.known.recall(found)
		if len(groupByUUID(found)) > 0 { // a template is not a machine
			got.machines = found
		}
		return nil
	})
	if got.err != nil || len(got.machines) > 0 {
		return got
	}
	return v.proveAbsence(ctx, id, asked)
}

// proveAbsence finds the virtual machines with an ID in a complete listing begun after the call. No machines and no error prove that there
// is none.
func (v *vcenter) proveAbsence(ctx context.Context, id string, asked time.Time) answer {
	doing := "vCenter " + v.config.Key + ": looking for virtual machine " + id
	all, err := v.everything.All(ctx, inventory.Query{MaxAge: time.Since(asked)})
	if err != nil {
		return answer{err: cloudapi.Unclear(doing, "it is not found, which does not prove that it is gone: %s", err)}
	}
	if same := filter(all, func(m machine) bool { return canonicalUUID(m.UUID) == id }); len(groupByUUID(same)) > 0 {
		return answer{machines: same}
	}
	if other := filter(all, func(m machine) bool { return m.InstanceUUID != "" && canonicalUUID(m.InstanceUUID) == id }); len(other) > 0 {
		return answer{err: cloudapi.Unclear(doing, "it is the instance UUID of %s, whose BIOS UUID is %s; start kubelet with --provider-id=%s%s",
			other[0], other[0].UUID, providerIDPrefix, other[0].UUID)}
	}
	for _, known := range v.known.machinesOf(id) {
		v.known.forget(known.Ref)
	}
	return answer{}
}

// reread reads a known virtual machine. The error is cloudapi.ErrNotFound only if vCenter itself says that it does not exist.
func (v *vcenter) reread(ctx context.Context, s *session, known machine) (machine, error) {
	list, err := s.retrieve(ctx, v.config.Key, []types.ManagedObjectReference{known.Ref})
	if f, ok := faultOf(err).(types.ManagedObjectNotFound); ok {
		if f.Obj == known.Ref {
			return machine{}, cloudapi.ErrNotFound
		}
		return machine{}, unclearError("vCenter speaks of %s instead of %s", f.Obj.Value, known.Ref.Value)
	}
	if err != nil {
		return machine{}, err
	}
	list, _ = v.known.recall(list)
	if len(list) == 0 {
		return machine{}, unclearError("the answer is about no virtual machine")
	}
	list[0].Path, list[0].Outside = known.Path, known.Outside
	return list[0], nil
}

// findByUUID searches all datacenters for a UUID in the byte order of the provider ID. The listing that proves absence finds either order.
func (s *session) findByUUID(ctx context.Context, uuid string) ([]types.ManagedObjectReference, error) {
	answer, err := methods.FindAllByUuid(withMethod(ctx, "FindAllByUuid"), s, &types.FindAllByUuid{
		This: *s.ServiceContent.SearchIndex, Uuid: uuid, VmSearch: true,
	})
	if err != nil {
		return nil, err //nolint:wrapcheck // apiError names it
	}
	return answer.Returnval, nil
}

// listComplete lists the virtual machines of a vCenter, and fails if some may be missing: vCenter silently omits objects that the account
// may not read, and the UUIDs of machines whose host or datastore is unavailable.
func (v *vcenter) listComplete(ctx context.Context) ([]machine, int, error) {
	listed := v.listMachines(ctx, true)
	if listed.err != nil {
		return nil, listed.calls, listed.err
	}
	v.known.Lock()
	unknown, problem, t := v.known.unknown, v.known.problem, v.known.tree
	v.known.Unlock()
	switch {
	case problem != nil:
		return nil, listed.calls, problem
	case len(unknown) > 0:
		names := make([]string, min(len(unknown), 5))
		for i := range names {
			names[i] = fmt.Sprintf("%s (%s, %s)", unknown[i].Name, unknown[i].Ref.Value, unknown[i].Connection)
		}
		return nil, listed.calls, fmt.Errorf("%d virtual machines are not accessible, and it may be one of them: %s", len(unknown), strings.Join(names, ", "))
	}
	for _, m := range listed.machines {
		if m.Problem != nil {
			return nil, listed.calls, m.Problem
		}
	}
	err := v.do(ctx, "reading permissions", func(ctx context.Context, s *session) error { return s.checkReadable(ctx, t) })
	return listed.machines, listed.calls + 1, err
}

// checkReadable returns an error unless the account may read every folder with virtual machines.
func (s *session) checkReadable(ctx context.Context, t tree) error {
	folders := t.machineFolders()
	if len(folders) == 0 {
		return unclearError("the account sees no datacenter; check its role, and where that propagates to")
	}
	answer, err := methods.HasUserPrivilegeOnEntities(withMethod(ctx, "HasUserPrivilegeOnEntities"), s, &types.HasUserPrivilegeOnEntities{
		This: *s.ServiceContent.AuthorizationManager, Entities: folders, UserName: s.user, PrivId: []string{privilegeRead},
	})
	if err != nil {
		return err //nolint:wrapcheck // the caller names it
	}
	granted := map[types.ManagedObjectReference]bool{}
	for _, e := range answer.Returnval {
		for _, p := range e.PrivAvailability {
			if p.PrivId == privilegeRead && p.IsGranted {
				granted[e.Entity] = true
			}
		}
	}
	for _, f := range folders {
		if !granted[f] {
			return unclearError("the account lacks %s on folder %s (%s)", privilegeRead, t.path(f), f.Value)
		}
	}
	return nil
}

// originalUUID returns a UUID in the byte order of its provider ID, if that was parsed.
func (a *api) originalUUID(id string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return cmp.Or(a.forms[id], id)
}

// maxForms bounds the memory of provider IDs; a cluster has far fewer.
const maxForms = 20_000

// parse returns the ID of a provider ID, and remembers its byte order.
func (a *api) parse(providerID string) (string, error) {
	id, err := parseProviderID(providerID)
	if form := strings.ToLower(strings.TrimSpace(strings.TrimPrefix(providerID, providerIDPrefix))); err == nil && form != id {
		a.mu.Lock()
		defer a.mu.Unlock()
		if len(a.forms) >= maxForms {
			clear(a.forms)
		}
		a.forms[id] = form
	}
	return id, err
}
