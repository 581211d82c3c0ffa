"""Tests of real processes: killed, stopped, cut off; judged by the history checker."""
