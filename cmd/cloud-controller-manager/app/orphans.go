package app

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// orphans lists, and on request deletes, what the cluster has left in the cloud.
type orphans struct {
	objectsCommand

	remove bool
}

func orphansCommand(c choice) *cobra.Command { return newOrphans(c).cmd }

func newOrphans(c choice) *orphans {
	o := &orphans{}
	o.set(c, "orphans", "List objects in the cloud that carry this cluster's mark and belong to no Service", "deleted", o.run)
	o.cmd.Flags().BoolVar(&o.remove, "delete", false, "Delete the listed objects, after asking for the cluster's name.")
	return o
}

func (o *orphans) run(ctx context.Context) error {
	if o.yes && !o.remove {
		return usage(errors.New("--yes: needs --delete"))
	}
	cloud, client, err := o.open()
	if err != nil {
		return err
	}
	services, err := listServices(ctx, client)
	if err != nil {
		return err
	}
	found, err := cloud.Orphans(ctx, services)
	if err != nil {
		return fmt.Errorf("looking for orphans: %w", err)
	}
	return o.printAndDelete(ctx, cloud, found)
}

// printAndDelete prints the results, and deletes them on request. Remaining orphans are an error, for scripts.
func (o *orphans) printAndDelete(ctx context.Context, cloud contract.OrphanFinder, found []contract.Orphan) error {
	if err := o.print(found); err != nil || len(found) == 0 {
		return err
	}
	if !o.remove {
		return &printedError{errors.New("there are orphans")}
	}
	return o.delete(ctx, cloud, found)
}

// open creates the cloud and a client of the API server.
func (o *orphans) open() (contract.OrphanFinder, kubernetes.Interface, error) {
	cloud, client, err := o.cloudCommand.open()
	if err != nil {
		return nil, nil, err
	}
	finder, ok := cloud.(contract.OrphanFinder)
	if !ok {
		return nil, nil, contract.ErrNoOrphans
	}
	return finder, client, nil
}

func (o *orphans) print(found []contract.Orphan) error {
	w := o.cmd.OutOrStdout()
	if o.output != humanTable {
		return printFor(w, o.output, found)
	}
	if len(found) == 0 {
		fmt.Fprintln(w, "There are no orphans.")
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "KIND\tID\tNAME\tCREATED")
	for _, f := range found {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", f.Kind, f.ID, f.Name, f.Created)
	}
	return t.Flush()
}

// delete removes the listed orphans after confirmation.
func (o *orphans) delete(ctx context.Context, cloud contract.OrphanFinder, found []contract.Orphan) error {
	w := o.cmd.ErrOrStderr()
	if err := o.ask(fmt.Sprintf("Type the name of the cluster, %s, to delete %s: ", o.clusterName, countOf(len(found), "object", "objects"))); err != nil {
		return err
	}
	var problems []error
	for _, f := range found {
		if err := cloud.DeleteOrphan(ctx, f); err != nil {
			problems = append(problems, fmt.Errorf("%s %s: %w", f.Kind, f.ID, err))
			continue
		}
		fmt.Fprintf(w, "Deleted %s %s.\n", f.Kind, f.ID)
	}
	if len(problems) > 0 {
		problems = append(problems, errors.New("not everything was deleted; what is left is listed, and deleted, by another call"))
	}
	return errors.Join(problems...)
}
