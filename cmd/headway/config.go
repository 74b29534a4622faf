package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/headway-limiter/headway/gateway/config"
)

// UsageError marks an error of whoever typed the command or wrote the
// configuration; the program exits with code 2.
type UsageError struct{ Err error }

// Error implements error.
func (e UsageError) Error() string { return e.Err.Error() }

// Unwrap gives the error itself.
func (e UsageError) Unwrap() error { return e.Err }

// defaultConfigFile is read when no file is named.
const defaultConfigFile = "headway.yaml"

func configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check, show and describe configurations",
		Long: `A configuration is one YAML file, ` + defaultConfigFile + ` in the working directory unless it
is named, without which headway serve runs a simulated provider for trying out. These commands read it and start nothing:

  validate  names every mistake with line and fix, and settings without effect
  show      prints what is in effect: defaults filled in, environment expanded,
            secrets masked
  schema    prints the JSON Schema, with a description of every field

Values may refer to the environment: ${NAME}, or ${NAME:-default}. Durations and
sizes have units. Examples to start from are in deploy/examples.`,
		Example: `  headway config validate headway.yaml
  headway config show headway.yaml
  headway config schema > headway.schema.json`,
		Args: cobra.NoArgs, // without it, a misspelt command is no mistake
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(configValidateCommand(), configShowCommand(), configSchemaCommand())
	return cmd
}

func configValidateCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "validate [FILE]",
		Short: "Name every mistake of a configuration with line and fix",
		Long: `Read FILE (default ` + defaultConfigFile + `, - for standard input) and name every mistake with its
line and fix. Settings that are allowed and do nothing are printed as warnings.
Exits 0 when the configuration can be used and 2 when it can not.`,
		Example: `  headway config validate deploy/examples/minimal.yaml`,
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, name, err := readConfig(cmd, args)
			if err != nil {
				return err
			}
			for _, w := range cfg.Warnings() {
				fmt.Fprintln(cmd.ErrOrStderr(), "warning:", w)
			}
			fmt.Fprintln(cmd.OutOrStdout(), name+": ok")
			return nil
		},
	}
}

func configShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show [FILE]",
		Short: "Print the effective configuration, secrets masked",
		Long: `Print the configuration of FILE (default ` + defaultConfigFile + `, - for standard input) with
defaults filled in, the environment expanded and secrets masked.`,
		Example: `  headway config show deploy/examples/minimal.yaml`,
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, _, err := readConfig(cmd, args)
			if err != nil {
				return err
			}
			out, err := cfg.Show()
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(out)
			return err
		},
	}
}

func configSchemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of the configuration",
		Long: `Print the JSON Schema of the configuration. Editors that know YAML schemas
complete and explain fields with it.`,
		Example: `  headway config schema > headway.schema.json`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out, err := config.Schema()
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(out)
			return err
		},
	}
}

// readConfig loads the file that args name. Whatever is wrong with it, the
// file's absence included, is a UsageError.
func readConfig(cmd *cobra.Command, args []string) (cfg *config.Config, name string, err error) {
	name = defaultConfigFile
	if len(args) > 0 {
		name = args[0]
	}
	if name == "-" {
		name = "standard input"
		var data []byte
		if data, err = io.ReadAll(cmd.InOrStdin()); err != nil {
			return nil, name, fmt.Errorf("headway: %w", err)
		}
		cfg, err = config.Parse(data, os.LookupEnv)
		if wrong := (*config.Error)(nil); errors.As(err, &wrong) {
			wrong.File = name
		}
	} else {
		cfg, err = config.Load(name)
	}
	if err != nil {
		return nil, name, UsageError{err}
	}
	return cfg, name, nil
}
