package app

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/anyccm/cloud-controller-manager/registry/guard"
)

// orphanSearch bounds the whole command.
const orphanSearch = 10 * time.Minute

// orphans lists, and on request deletes, what the cluster has left in the cloud.
type orphans struct {
	cloudCommand

	clusterName string
	output      string
	remove      bool
}

func orphansCommand(c choice) *cobra.Command {
	o := &orphans{cloudCommand: cloudCommand{providers: c.providers}}
	o.cmd = &cobra.Command{
		Use: "orphans", Args: usageArgs(cobra.NoArgs),
		Example: c.example("orphans --cloud-provider=%s --kubeconfig=$HOME/.kube/config"),
		Short:   "List objects in the cloud that carry this cluster's mark and belong to no Service",
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), orphanSearch)
			defer cancel()
			return o.run(ctx)
		},
	}
	fs := o.cmd.Flags()
	o.addFlags()
	fs.StringVar(&o.clusterName, "cluster-name", "kubernetes", "The name to type before anything is deleted.")
	addOutputFlag(o.cmd, &o.output, humanTable)
	fs.BoolVar(&o.remove, "delete", false, "Delete the listed objects, after asking for the cluster's name.")
	c.addFlags(o.cmd)
	return o.cmd
}

func (o *orphans) run(ctx context.Context) error {
	if err := checkOutput(o.output, humanTable); err != nil {
		return err
	}
	cloud, client, err := o.open()
	if err != nil {
		return err
	}
	list, err := client.CoreV1().Services(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing Services: %w", err)
	}
	services := make([]*v1.Service, len(list.Items))
	for i := range list.Items {
		services[i] = &list.Items[i]
	}
	found, err := cloud.Orphans(ctx, services)
	if err != nil {
		return fmt.Errorf("looking for orphans: %w", err)
	}
	if err := o.print(found); err != nil || !o.remove || len(found) == 0 {
		return err
	}
	return o.delete(ctx, cloud, found)
}

// open makes the cloud and a client of the API server.
func (o *orphans) open() (guard.OrphanFinder, kubernetes.Interface, error) {
	cloud, client, err := o.cloudCommand.open()
	if err != nil {
		return nil, nil, err
	}
	finder, ok := cloud.(guard.OrphanFinder)
	if !ok {
		return nil, nil, guard.ErrNoOrphans
	}
	return finder, client, nil
}

func (o *orphans) print(found []guard.Orphan) error {
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

// delete removes what was listed, once the cluster's name was typed.
func (o *orphans) delete(ctx context.Context, cloud guard.OrphanFinder, found []guard.Orphan) error {
	w := o.cmd.ErrOrStderr()
	fmt.Fprintf(w, "Type the name of the cluster, %s, to delete these %d objects: ", o.clusterName, len(found))
	line, err := bufio.NewReader(o.cmd.InOrStdin()).ReadString('\n')
	if strings.TrimSpace(line) != o.clusterName {
		return errors.Join(errors.New("nothing was deleted: that is not the name of the cluster"), ignoreEOF(err))
	}
	var problems []error
	for _, f := range found {
		if err := cloud.DeleteOrphan(ctx, f); err != nil {
			problems = append(problems, err)
			continue
		}
		fmt.Fprintf(w, "Deleted %s %s.\n", f.Kind, f.ID)
	}
	return errors.Join(problems...)
}

// ignoreEOF: an input without a last line break is an input.
func ignoreEOF(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
