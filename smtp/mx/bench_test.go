package mx
