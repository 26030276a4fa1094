// Command judge reads a Photon Controller with the SDK that Kubernetes had, and writes what it has seen as JSON. A test points it at the
// simulated one.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/vmware/photon-controller-go-sdk/photon"
)

type report struct {
	Status   string
	Listed   []string
	Networks any
	Missing  string
}

func main() {
	r, err := look(os.Args[1], os.Args[2], os.Args[3], os.Args[4])
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(r)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func look(url, user, password, project string) (r report, err error) {
	options := &photon.ClientOptions{IgnoreCertificate: true, TokenOptions: &photon.TokenOptions{}, TaskPollTimeout: time.Minute}
	c := photon.NewClient(url, options, nil)
	tokens, err := c.Auth.GetTokensByPassword(user, password)
	if err != nil {
		return r, fmt.Errorf("logging in: %w", err)
	}
	options.TokenOptions.AccessToken, options.TokenOptions.RefreshToken = tokens.AccessToken, tokens.RefreshToken
	c = photon.NewClient(url, options, nil)
	status, err := c.Status.Get()
	if err != nil {
		return r, fmt.Errorf("reading the status: %w", err)
	}
	r.Status = status.Status
	all, err := c.Projects.GetVMs(project, nil)
	if err != nil {
		return r, fmt.Errorf("listing: %w", err)
	}
	for _, v := range all.Items {
		r.Listed = append(r.Listed, fmt.Sprintf("%s %s %s %s", v.ID, v.Name, v.State, v.Flavor))
	}
	task, err := c.VMs.GetNetworks(all.Items[0].ID)
	if err != nil {
		return r, fmt.Errorf("asking for networks: %w", err)
	}
	ended, err := c.Tasks.Wait(task.ID)
	if err != nil {
		return r, fmt.Errorf("waiting: %w", err)
	}
	r.Networks = ended.ResourceProperties
	_, err = c.VMs.Get("nope")
	var refused photon.ApiError
	if !errors.As(err, &refused) {
		return r, fmt.Errorf("reading what does not exist: %w", err)
	}
	r.Missing = fmt.Sprintf("%d %s", refused.HttpStatusCode, refused.Code)
	return r, nil
}
