package app

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// orphanage is a cloud from which orphans can be deleted.
type orphanage struct {
	deleted []string
	busy    string
}

func (*orphanage) Orphans(context.Context, []*v1.Service) ([]contract.Orphan, error) { return nil, nil }

func (o *orphanage) DeleteOrphan(_ context.Context, orphan contract.Orphan) error {
	if orphan.ID == o.busy {
		return errors.New("not ready")
	}
	o.deleted = append(o.deleted, orphan.ID)
	return nil
}

// TestOrphans: remaining orphans are an error, for scripts; they are deleted after confirmation or with --yes.
func TestOrphans(t *testing.T) {
	two := []contract.Orphan{{Kind: "load balancer", ID: "lb-1"}, {Kind: "address", ID: "ip-1"}}
	for name, c := range map[string]struct {
		args, input string
		found       []contract.Orphan
		deleted     []string
		says        string
		status      int
	}{
		"none":      {says: "There are no orphans."},
		"listed":    {found: two, says: "lb-1", status: exitFailed},
		"typed":     {args: "--delete --cluster-name=prod", input: "prod\n", found: two[:1], deleted: []string{"lb-1"}, says: "Type the name of the cluster, prod, to delete 1 object: "},
		"mistyped":  {args: "--delete --cluster-name=prod", input: "test\n", found: two, says: "to delete 2 objects: ", status: exitFailed},
		"unnamed":   {args: "--delete --cluster-name=", input: "\n", found: two, says: "to delete 2 objects: ", status: exitFailed},
		"not asked": {args: "--delete --yes", found: two, deleted: []string{"lb-1", "ip-1"}, says: "Deleted address ip-1."},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOrphans(choice{providers: &registry.Registry{}})
			var output bytes.Buffer
			o.cmd.SetOut(&output)
			o.cmd.SetErr(&output)
			o.cmd.SetIn(strings.NewReader(c.input))
			require.NoError(t, o.cmd.ParseFlags(strings.Fields(c.args)))
			cloud := &orphanage{}
			err := o.printAndDelete(t.Context(), cloud, c.found)
			if c.status == 0 {
				require.NoError(t, err)
			} else {
				require.Error(t, err)
				assert.Equal(t, c.status, exitStatus(err))
			}
			assert.Contains(t, output.String(), c.says)
			assert.Equal(t, c.deleted, cloud.deleted)
			assert.Equal(t, strings.Contains(c.args, "--yes"), !strings.Contains(output.String(), "Type the name") && c.deleted != nil)
		})
	}
}

// TestOrphansThatStay: failed deletions are named, and the others proceed.
func TestOrphansThatStay(t *testing.T) {
	o := newOrphans(choice{providers: &registry.Registry{}})
	o.cmd.SetOut(io.Discard)
	o.cmd.SetErr(io.Discard)
	require.NoError(t, o.cmd.ParseFlags([]string{"--delete", "--yes"}))
	cloud := &orphanage{busy: "lb-1"}
	err := o.printAndDelete(t.Context(), cloud, []contract.Orphan{{Kind: "load balancer", ID: "lb-1"}, {Kind: "address", ID: "ip-1"}})
	require.ErrorContains(t, err, "load balancer lb-1: not ready")
	require.ErrorContains(t, err, "not everything was deleted")
	assert.Equal(t, []string{"ip-1"}, cloud.deleted)
}
