package simkit

import (
	"encoding/json"
	"fmt"
)

// Action is one of Cloud.Actions that takes what its body says.
func Action[T any](do func(T) error) func(json.RawMessage) error {
	return func(body json.RawMessage) error {
		var in T
		if err := json.Unmarshal(body, &in); err != nil {
			return fmt.Errorf("reading the action: %w", err)
		}
		return do(in)
	}
}

// SetStatus is the action that gives an instance a status, by its ID.
func SetStatus[ID any](set func(id ID, status string) error, status string) func(json.RawMessage) error {
	return Action(func(in struct{ ID ID }) error { return set(in.ID, status) })
}

// SetToken is the action that changes the credential: the one in use is worth nothing from then on.
func SetToken(set func(token string)) func(json.RawMessage) error {
	return Action(func(in struct{ Token string }) error {
		set(in.Token)
		return nil
	})
}
