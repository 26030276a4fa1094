package app

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const maxObjectsCommand = 10 * time.Minute

// objectsCommand lists objects in the cloud, and changes them after a confirmation with the cluster's name.
type objectsCommand struct {
	cloudCommand

	clusterName string
	output      string
	// done is the change as a participle, for messages.
	done string
	// yes skips the confirmation.
	yes bool
}

// set creates the command and binds its flags.
func (l *objectsCommand) set(c choice, name, short, done string, run func(context.Context) error) {
	l.providers, l.done = c.providers, done
	l.cmd = &cobra.Command{
		Use: name, Args: usageArgs(cobra.NoArgs), Short: short,
		Example: c.example(name + " --cloud-provider=%s --kubeconfig=$HOME/.kube/config"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), maxObjectsCommand)
			defer cancel()
			if err := checkOutput(l.output, humanTable); err != nil {
				return err
			}
			return run(ctx)
		},
	}
	l.addFlags()
	l.cmd.Flags().BoolVar(&l.yes, "yes", false, "Do not ask for the cluster's name before anything is "+done+".")
	l.cmd.Flags().StringVar(&l.clusterName, "cluster-name", "kubernetes", "The name to type before anything is "+done+".")
	addOutputFlag(l.cmd, &l.output, humanTable)
	c.addFlags(l.cmd)
}

// ask demands the cluster's name, unless --yes was given.
func (l *objectsCommand) ask(question string) error {
	if l.yes {
		return nil
	}
	fmt.Fprint(l.cmd.ErrOrStderr(), question)
	line, err := bufio.NewReader(l.cmd.InOrStdin()).ReadString('\n')
	if name := strings.TrimSpace(line); name != "" && name == l.clusterName { // nobody agrees by saying nothing
		return nil
	}
	if errors.Is(err, io.EOF) {
		err = nil // the last line may lack a line break
	}
	return errors.Join(errors.New("nothing was "+l.done+": that is not the name of the cluster"), err)
}

// listServices returns all Services of the cluster.
func listServices(ctx context.Context, client kubernetes.Interface) ([]*v1.Service, error) {
	list, err := client.CoreV1().Services(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing Services: %w", err)
	}
	services := make([]*v1.Service, len(list.Items))
	for i := range list.Items {
		services[i] = &list.Items[i]
	}
	return services, nil
}
