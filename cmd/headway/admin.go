package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

const (
	// adminTokenName is the variable with the token of the admin listener.
	adminTokenName = "HEADWAY_ADMIN_TOKEN"
	// defaultAdmin is where a replica's admin listener is unless it was moved.
	defaultAdmin = "http://127.0.0.1:9090"
)

// adminFlags say which replica is asked, as they are typed.
type adminFlags struct {
	address, token string
	files          adminFiles
}

// register adds the flags to cmd. address is the default.
func (f *adminFlags) register(cmd *cobra.Command, address string) {
	cmd.Flags().StringVar(&f.address, "admin", address, "address of a replica's admin listener, such as "+defaultAdmin)
	cmd.Flags().StringVar(&f.token, "admin-token", "${"+adminTokenName+"}", "variable with the admin token, as '${NAME}'")
	cmd.Flags().StringVar(&f.files.ca, "ca", "", "PEM file with the authority of an https listener (default those of the system)")
	cmd.Flags().StringVar(&f.files.cert, "client-cert", "", "PEM file with a certificate for a listener that asks for one")
	cmd.Flags().StringVar(&f.files.key, "client-key", "", "PEM file with its private key")
}

// listener is the admin listener of a replica.
type listener struct {
	base     *url.URL
	token    string // empty: none is sent
	variable string // where the token is from
	client   *http.Client
}

// listener checks the flags.
func (f adminFlags) listener() (*listener, error) {
	base, err := url.Parse(f.address)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, UsageError{errors.New("headway: --admin is not like " + defaultAdmin)}
	}
	name := reference.FindStringSubmatch(f.token)
	if name == nil {
		return nil, UsageError{errors.New("headway: --admin-token is not like '${NAME}': a token typed here would be seen by others")}
	}
	client, err := f.files.client(base)
	if err != nil {
		return nil, err
	}
	l := &listener{base: base, token: os.Getenv(name[1]), variable: name[1], client: client}
	if l.token == "" && l.variable != adminTokenName { // which not every listener needs
		return nil, UsageError{fmt.Errorf("headway: --admin-token: the variable %s is not set; export %[1]s=VALUE", l.variable)}
	}
	return l, nil
}

// ask sends a request and reads the JSON of its answer, of most bytes, into into.
// body is that of a POST; nil: it is a GET.
func (l *listener) ask(ctx context.Context, path string, body io.Reader, most int64, into any) error {
	method := http.MethodGet
	if body != nil {
		method = http.MethodPost
	}
	r, err := http.NewRequestWithContext(ctx, method, l.base.JoinPath("api", path).String(), body)
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	if l.token != "" {
		r.Header.Set("Authorization", "Bearer "+l.token)
	}
	resp, err := l.client.Do(r)
	if err != nil {
		return l.unreached(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, most))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return l.failure(path, resp.StatusCode, data)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("the answer of %s is no document of Headway (%w): --admin has to be the address of a replica's admin listener (server.admin_listen)", l.base.Host, err)
	}
	return nil
}

// failure says what an answer to path other than 200 means, and what to check.
func (l *listener) failure(path string, status int, body []byte) error {
	var said struct {
		Error struct{ Code, Message string }
	}
	_ = json.Unmarshal(body, &said) // what is no JSON says nothing
	code, message := said.Error.Code, said.Error.Message
	if message == "" {
		message = http.StatusText(status)
	}
	err := fmt.Errorf("headway: %s (status %d)", message, status)
	switch {
	case status == http.StatusUnprocessableEntity:
		return UsageError{errors.New("headway: " + strings.TrimPrefix(message, "gateway: "))}
	case status == http.StatusUnauthorized && code != "invalid_api_key", code == "operators_only":
		state := "which is wrong"
		if l.token == "" {
			state = "which is not set"
		}
		return UsageError{fmt.Errorf("%w; the admin token (server.admin_token) is taken from %s, %s; --admin-token names another variable", err, l.variable, state)}
	case code == "foreign_host":
		return UsageError{err}
	case wantsTLS(status, body):
		return UsageError{fmt.Errorf("headway: %s speaks TLS: write --admin https://%s", l.base.Host, l.base.Host)}
	}
	hint := fmt.Sprintf("is --admin (%s) the admin listener of a replica (server.admin_listen)", l.base.Host)
	if path != "explain" {
		hint += ", with server.console on"
	}
	return fmt.Errorf("%s (status %d): %s?", message, status, hint)
}
